//! Languages: negotiation, plurals, durations.

use super::*;

#[test]
fn the_best_liked_language_wins() {
    let table = [
        (None, Lang::En),
        (Some(""), Lang::En),
        (Some("de"), Lang::De),
        (Some("DE-at"), Lang::De),
        (Some("zh-Hant-TW"), Lang::Zh),
        (Some("nl, fr;q=0.5, ar;q=0.9"), Lang::Ar),
        (Some("en;q=0.1, hi;q=0.2"), Lang::Hi),
        (Some("es , de"), Lang::Es),
        (Some("de;q=0"), Lang::En),
        (Some("de;q=0, *"), Lang::En),
        (Some("de;q=x, fr;q=0.1"), Lang::Fr),
        (Some("de;q=2, fr;q=0.1"), Lang::Fr),
        (Some("de;q=nan"), Lang::En),
        (Some("*;q=0.5, es;q=0.4"), Lang::En),
        (Some("den"), Lang::En),
        (Some(",,;;q=,-"), Lang::En),
    ];
    for (field, expected) in table {
        assert_eq!(Lang::negotiate(field), expected, "{field:?}");
    }
}

#[test]
fn work_on_a_hostile_field_is_bounded() {
    let field = format!("{}de", "nl,".repeat(32));
    assert_eq!(Lang::negotiate(Some(&field)), Lang::En);
}

#[test]
fn numbers_are_grouped_as_the_language_does() {
    let table = [
        (Lang::En, 0, "0"),
        (Lang::En, 999, "999"),
        (Lang::En, 1_000, "1,000"),
        (Lang::En, 1_234_567, "1,234,567"),
        (Lang::De, 12_345, "12.345"),
        (Lang::Fr, 1_234, "1\u{202f}234"),
        (Lang::Es, 1_234, "1234"),
        (Lang::Es, 12_345, "12.345"),
        (Lang::Hi, 1_234, "1,234"),
        (Lang::Hi, 1_234_567, "12,34,567"),
        (Lang::Ar, 1_234, "1,234"),
        (Lang::En, u64::MAX, "18,446,744,073,709,551,615"),
    ];
    for (lang, n, expected) in table {
        let mut out = Vec::new();
        lang.strings().grouping.write(n, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected, "{lang:?}");
    }
}

#[test]
fn durations_read_as_people_say_them() {
    let table = [
        (Lang::En, 0, "0 seconds"),
        (Lang::En, 1, "1 second"),
        (Lang::En, 1_000, "1 second"),
        (Lang::En, 1_001, "2 seconds"),
        (Lang::En, 90_000, "90 seconds"),
        (Lang::En, 90_001, "2 minutes"),
        (Lang::En, 240_000, "4 minutes"),
        (Lang::En, 5_400_000, "90 minutes"),
        (Lang::En, 5_430_000, "2 hours"),
        (Lang::En, u64::MAX, "48 hours"),
        (Lang::De, 1_000, "1 Sekunde"),
        (Lang::Ar, 2_000, "ثانيتان"),
        (Lang::Ar, 240_000, "4 دقائق"),
        (Lang::Ar, 660_000, "11 دقيقة"),
        (Lang::Zh, 240_000, "4分钟"),
        (Lang::Fr, 0, "0 seconde"),
    ];
    for (lang, ms, expected) in table {
        let words = Words::new(lang.strings());
        assert_eq!(words.plain(Duration::from_millis(ms)), expected, "{lang:?} {ms}");
    }
}

#[test]
fn a_wait_is_an_estimate_with_an_emphasised_number() {
    let words = Words::new(Lang::En.strings());
    assert_eq!(words.wait(Duration::ZERO), "<b class=w>Any moment now</b>");
    assert_eq!(words.wait(Duration::from_secs(42)), "<b>42</b> seconds");
    assert_eq!(words.wait(Duration::from_secs(240)), "about <b>4</b> minutes");
    assert_eq!(
        Words::new(Lang::Ar.strings()).wait(Duration::from_secs(120)),
        "<b class=w>دقيقتان</b> تقريبًا"
    );
    assert!(!words.wait(Duration::MAX).is_empty());
}

#[test]
fn strings_hold_no_markup_and_the_right_slots() {
    for lang in Lang::ALL {
        let s = lang.strings();
        for pattern in [s.about, s.left] {
            assert_eq!(pattern.matches("{t}").count(), 1, "{lang:?} {pattern}");
        }
        let text = format!("{s:?}");
        assert!(!text.contains(['<', '>', '&']), "{lang:?}");
        for unit in [s.second, s.minute, s.hour] {
            assert!(unit.other.contains("{n}"), "{lang:?} {unit:?}");
        }
    }
}
