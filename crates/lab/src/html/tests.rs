//! The page is whole, self-contained and accessible.

use super::*;
use crate::outcome::Way;
use crate::tally::Tally;
use crate::tally::tests::gated;

fn named(name: &str) -> Outcome {
    gated().outcome(name, Way::Real, 7, None)
}

fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn a_page_is_whole_and_fetches_nothing() {
    let mut partial = named("without <gate>");
    partial.partial = Some("the target & its host died".into());
    let page = page(&[&partial, &named("with gate")]);
    assert!(page.starts_with("<!doctype html>\n<html lang=\"en\">") && page.ends_with("</html>\n"));
    for tag in ["main", "section", "figure", "table", "caption", "tbody", "thead", "svg", "details", "h2"] {
        let opened = count(&page, &format!("<{tag}>")) + count(&page, &format!("<{tag} "));
        assert!(opened > 0 && opened == count(&page, &format!("</{tag}>")), "{tag}: {opened}");
    }
    let links = ["<script", "<link", "<img", "@import", "url(", "href="];
    assert!(links.iter().all(|link| !page.contains(link)));
    // The only address is the name of the SVG language.
    assert_eq!(
        count(&page, "http://") + count(&page, "https://"),
        count(&page, "xmlns=\"http://www.w3.org/2000/svg\"")
    );
    assert!(
        page.contains("without &lt;gate&gt;: these figures are partial: the target &amp; its host died.")
    );
    assert!(!page.contains("<gate>"));
}

#[test]
fn figures_have_names_and_tables_have_captions() {
    let both = page(&[&named("without"), &named("with")]);
    assert_eq!(count(&both, "<figure>"), 2 + 2 * 4, "compared, and four kinds of each");
    assert_eq!(count(&both, "role=\"img\" aria-label=\""), 2 + 2 * 4);
    assert_eq!(count(&both, "<table>"), count(&both, "<caption>"));
    assert_eq!(count(&both, "<h1>"), 1);
    assert_eq!(count(&page(&[&named("alone")]), "<figure>"), 4);
}

#[test]
fn nothing_to_show_is_no_panic() {
    let empty = Tally::default().outcome("", Way::Sim, 1, None);
    assert!(page(&[&empty]).contains("no data"));
    assert!(page(&[]).contains("<h1>No outcome</h1>"));
}

#[test]
fn the_same_outcomes_give_the_same_page() {
    assert_eq!(page(&[&named("a")]), page(&[&named("a")]));
}

#[test]
fn side_by_side_is_on_the_same_axes() {
    let mut other = named("busier");
    other.series[2].offered = 5000;
    let labels = |page: &str, title: &str| {
        let from = page.find(title).expect("the figure");
        let figure = &page[from..from + page[from..].find("</svg>").expect("its end")];
        figure.lines().filter(|line| *line == "5000").count()
    };
    let page = page(&[&named("quiet"), &other]);
    assert_eq!(labels(&page, "Offered and served: quiet: per second"), 1);
    assert_eq!(labels(&page, "Offered and served: busier: per second"), 1);
}
