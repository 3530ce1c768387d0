//! Templates of paths: what is folded, which ones have a type, and what an attacker can do about it.

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_core::correlate::templates::{MAX_LENGTH, OTHER, TemplateSettings, Templates, template};

fn of(target: &str) -> String {
    template(&TemplateSettings::default(), "GET", target)
}

#[test]
fn what_differs_from_request_to_request_is_folded() {
    for (target, expected) in [
        ("/", "/"),
        ("", "/"),
        ("*", "/*"),
        ("/search", "/search"),
        ("/SearchItemsByCategory.php?category=3&page=2", "/SearchItemsByCategory.php"),
        ("/item/4711/bids", "/item/{n}/bids"),
        ("/item-4711.html", "/item-{n}.html"),
        ("/user42/", "/user{n}/"),
        ("/2024-05-31/news", "/{n}/news"),
        ("/at/52.5,13.4", "/at/{n}"),
        ("/o/550e8400-e29b-41d4-a716-446655440000", "/o/{uuid}"),
        ("/o/550E8400-E29B-41D4-A716-446655440000", "/o/{uuid}"),
        ("/commit/deadbeef", "/commit/{hash}"),
        ("/commit/da39a3ee5e6b4b0d3255bfef95601890afd80709", "/commit/{hash}"),
        ("/static/app.3f2a9c1b.js", "/static/app.{hash}.js"),
        ("/video/a1b2c3.mp4", "/video/{id}.mp4"),
        ("/t/eyJhbGciOiJIUzI1NiJ9", "/t/{id}"),
        ("/t/QmFzZVNpeHR5Rm91ckxldHRlcnM", "/t/{id}"),
        ("/t/kjhgfdsaqwertzuiopmnbvcxy", "/t/{token}"),
        ("/wiki/%C3%9Cbung", "/wiki/{token}"),
        ("/api/v2/users/7", "/api/v2/users/{n}"),
        ("/view;jsessionid=8F3A?x=1", "/view"),
        ("http://shop.example/item/1#top", "/item/{n}"),
        ("https://shop.example", "/"),
        ("//a///b/", "/a/b/"),
        ("/../{n}", "/../{token}"),
    ] {
        assert_eq!(of(target), expected, "{target}");
    }
}

#[test]
fn chosen_parameters_stay_by_name_in_a_fixed_order() {
    let settings =
        TemplateSettings { parameters: vec!["sort".into(), "q".into()], ..TemplateSettings::default() };
    let of = |target| template(&settings, "GET", target);
    assert_eq!(of("/s?q=secret&page=3&sort=price"), "/s?sort&q");
    assert_eq!(of("/s?sort&q=1&q=2"), "/s?sort&q");
    assert_eq!(of("/s?page=3&quality=1"), "/s");
}

#[test]
fn methods_are_told_apart_if_asked() {
    let settings = TemplateSettings { with_method: true, ..TemplateSettings::default() };
    assert_eq!(template(&settings, "POST", "/a/1"), "POST /a/{n}");
    assert_eq!(template(&settings, "<script>", "/a"), "{method} /a");
    assert_eq!(template(&settings, &"A".repeat(1_000), "/a"), "{method} /a");
}

#[test]
fn a_template_has_a_type_from_its_second_request_on() {
    let mut templates = Templates::new(TemplateSettings::default());
    assert_eq!(templates.observe("GET", "/item/1").index, OTHER);
    let second = templates.observe("GET", "/item/2");
    assert!(second.index != OTHER && second.is_new);
    let third = templates.observe("GET", "/item/3");
    assert!(third.index == second.index && !third.is_new);
    assert_eq!(templates.name(second.index), Some("/item/{n}"));
    assert_eq!((templates.name(OTHER), templates.name(7), templates.len()), (None, None, 2));
}

/// A word that no rule folds.
fn word(random: &mut StdRng) -> String {
    (0..12).map(|_| char::from(random.random_range(b'g'..=b'z'))).collect()
}

#[test]
fn random_paths_push_no_real_template_out() {
    let settings = TemplateSettings { max_types: 50, ..TemplateSettings::default() };
    // The attacker comes first, or after the site's visitors.
    for attacker_first in [true, false] {
        let mut random = StdRng::seed_from_u64(1);
        let mut templates = Templates::new(settings.clone());
        let pages: Vec<String> = (0..40).map(|_| format!("/{}", word(&mut random))).collect();
        let attack = |templates: &mut Templates, random: &mut StdRng, requests| {
            for _ in 0..requests {
                let path = format!("/{}/{}", word(random), word(random));
                assert_eq!(templates.observe("GET", &path).index, OTHER, "a path that comes once");
            }
        };
        if attacker_first {
            attack(&mut templates, &mut random, 100_000);
        }
        for round in 0..2_000 {
            for page in &pages {
                templates.observe("GET", page);
                // Nine of ten requests are the attacker's.
                attack(&mut templates, &mut random, if round % 20 == 0 { 9 } else { 0 });
            }
        }
        attack(&mut templates, &mut random, 100_000);
        for page in &pages {
            let seen = templates.observe("GET", page);
            assert!(seen.index != OTHER && !seen.is_new, "{page}, attacker first: {attacker_first}");
        }
    }
}

#[test]
fn real_templates_take_the_types_that_an_attacker_filled() {
    let mut random = StdRng::seed_from_u64(2);
    let mut templates = Templates::new(TemplateSettings { max_types: 20, ..TemplateSettings::default() });
    // Each path twice, so that it has a type.
    for _ in 0..200 {
        let path = format!("/{}", word(&mut random));
        templates.observe("GET", &path);
        templates.observe("GET", &path);
    }
    assert_eq!(templates.len(), 21);
    let pages: Vec<String> = (0..15).map(|_| format!("/{}", word(&mut random))).collect();
    let mut changed = 0;
    for _ in 0..100 {
        for page in &pages {
            changed += usize::from(templates.observe("GET", page).is_new);
        }
    }
    assert_eq!(changed, pages.len(), "each takes a type once");
    for page in &pages {
        let index = templates.observe("GET", page).index;
        assert_eq!(templates.name(index), Some(page.as_str()));
    }
}

#[test]
fn a_mix_of_the_past_makes_room_for_the_present() {
    let mut templates = Templates::new(TemplateSettings { max_types: 1, ..TemplateSettings::default() });
    (0..100_000).for_each(|_| _ = templates.observe("GET", "/old"));
    assert_eq!(templates.observe("GET", "/old").index, 1);
    (0..20_000).for_each(|_| _ = templates.observe("GET", "/new"));
    assert_eq!(templates.name(1), Some("/new"));
    assert_eq!(templates.observe("GET", "/old").index, OTHER);
}

#[test]
fn without_types_everything_is_other() {
    let mut templates = Templates::new(TemplateSettings { max_types: 0, ..TemplateSettings::default() });
    for _ in 0..5_000 {
        assert_eq!(templates.observe("GET", "/a").index, OTHER);
    }
    assert!(templates.is_empty());
}

proptest! {
    #[test]
    fn hostile_targets_give_short_printable_templates(
        method in ".{0,40}",
        target in prop_oneof![".{0,400}", "(/[a-z0-9%.;?&=-]{0,60}){0,20}", "/[!-~]{0,300}"],
    ) {
        let settings =
            TemplateSettings { with_method: true, parameters: vec!["q".into(), "x".repeat(200)], max_types: 5 };
        let found = template(&settings, &method, &target);
        prop_assert!(found.len() <= MAX_LENGTH, "{} bytes: {found}", found.len());
        prop_assert!(found.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'<' && b != b'"'), "{found}");
    }

    #[test]
    fn the_number_in_a_path_does_not_matter(a in 0u64.., b in 0u64.., name in "[a-z]{1,12}") {
        prop_assert_eq!(of(&format!("/{name}/{a}")), of(&format!("/{name}/{b}")));
        prop_assert_eq!(of(&format!("/{name}-{a}.html?x={b}")), of(&format!("/{name}-{b}.html")));
    }

    #[test]
    fn types_stay_few_and_mean_one_template(paths in prop::collection::vec(0u32..60, 0..3_000)) {
        let mut templates = Templates::new(TemplateSettings { max_types: 5, ..TemplateSettings::default() });
        for path in paths {
            // Letters only: a digit would be folded.
            let target: String = format!("/p{path}").chars().map(|c| if c.is_ascii_digit() {
                char::from(c as u8 - b'0' + b'g') } else { c }).collect();
            let seen = templates.observe("GET", &target);
            prop_assert!(seen.index <= 5);
            if seen.index != OTHER {
                prop_assert_eq!(templates.name(seen.index), Some(target.as_str()));
            }
        }
        let names: std::collections::BTreeSet<_> = (1..templates.len()).map(|k| templates.name(k)).collect();
        prop_assert_eq!(names.len(), templates.len() - 1);
    }
}
