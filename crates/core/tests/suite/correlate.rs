//! Culprits are found among types of requests, and the innocent are not named: over 1,000 seeds.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_core::correlate::{Finding, Settings, analyse};

const SEEDS: u64 = 1_000;

/// The request types of the paper's Fig. 1 with their mean requests per second, about RUBiS's mix at 462 in
/// all.
const TYPES: [(&str, f64); 16] = [
    ("BrowseCategories.php", 40.0),
    ("BrowseRegions.php", 20.0),
    (CATEGORY, 50.0),
    (REGION, 20.0),
    ("AboutMe.php", 12.0),
    ("RegisterUser.php", 3.0),
    ("SellItemForm.php", 8.0),
    ("RegisterItem.php", 6.0),
    ("ViewItem.php", 150.0),
    ("PutComment.php", 3.0),
    ("ViewUserInfo.php", 40.0),
    ("PutBidAuth.php", 30.0),
    ("PutBid.php", 28.0),
    ("BuyNowAuth.php", 6.0),
    ("BuyNow.php", 6.0),
    ("ViewBidHistory.php", 40.0),
];
const CATEGORY: &str = "SearchItemsByCategory.php";
const REGION: &str = "SearchItemsByRegion.php";

/// How requests come and what they cost.
struct Scene {
    intervals: usize,
    /// Cost of a request in percent of the processor, by name. All others cost nothing.
    costs: &'static [(&'static str, f64)],
    /// Standard deviation of what else moves the processor.
    noise: f64,
    /// How much of the last interval's noise and crowd is in this one's.
    memory: f64,
    /// Standard deviation of the crowd's size, which all types have in common, relative to its mean.
    crowd: f64,
    /// The same of what each type has of its own.
    waves: f64,
    /// A type of which so many requests come with each request of `CATEGORY`.
    companion: Option<(&'static str, f64)>,
    /// Intervals by which the processor is late.
    late: usize,
}

const FIG_1: Scene = Scene {
    intervals: 600,
    costs: &[(CATEGORY, 0.6), (REGION, 0.5)],
    noise: 6.0,
    memory: 0.0,
    crowd: 0.0,
    waves: 0.0,
    companion: None,
    late: 0,
};

/// A standard normal figure, by the sum of twelve.
fn normal(random: &mut StdRng) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

/// Requests that come independently of each other.
fn poisson(random: &mut StdRng, mean: f64) -> f64 {
    // Knuth's method for small means; a large one is nearly normal.
    if mean > 30.0 {
        return (mean + mean.sqrt() * normal(random)).round().max(0.0);
    }
    let (limit, mut product, mut count) = ((-mean).exp(), 1.0, 0.0);
    loop {
        product *= random.random::<f64>();
        if product <= limit {
            return count;
        }
        count += 1.0;
    }
}

/// The next value of a series with standard deviation one.
fn next(random: &mut StdRng, last: f64, memory: f64) -> f64 {
    memory * last + (1.0 - memory * memory).sqrt() * normal(random)
}

impl Scene {
    fn play(&self, seed: u64) -> (Vec<Vec<f64>>, Vec<f64>) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut counts = vec![Vec::new(); TYPES.len()];
        let mut figure = vec![30.0; self.intervals];
        let (mut crowd, mut noise, mut waves) = (0.0, 0.0, [0.0; TYPES.len()]);
        for t in 0..self.intervals {
            crowd = next(&mut random, crowd, self.memory);
            noise = next(&mut random, noise, self.memory);
            for ((of_type, (_, mean)), wave) in counts.iter_mut().zip(TYPES).zip(&mut waves) {
                *wave = next(&mut random, *wave, self.memory);
                let size = 1.0 + self.crowd * crowd + self.waves * *wave;
                of_type.push(poisson(&mut random, mean * size.max(0.0)));
            }
            if let Some((name, per_culprit)) = self.companion {
                let with = per_culprit * counts[index(CATEGORY)][t];
                counts[index(name)][t] += with.round();
            }
            for (name, cost) in self.costs {
                if let Some(figure) = figure.get_mut(t + self.late) {
                    *figure += cost * counts[index(name)][t];
                }
            }
            figure[t] += self.noise * noise;
        }
        (counts, figure)
    }

    /// Over all seeds: how often each culprit was found, and each innocent type was named.
    fn judge(&self, settings: &Settings) -> Tally {
        let mut tally = Tally { named: vec![0; TYPES.len()], ..Tally::default() };
        for seed in 0..SEEDS {
            let (counts, figure) = self.play(seed);
            let findings = analyse(&counts, &figure, settings);
            let is_innocent = |index: usize| self.costs.iter().all(|(name, _)| TYPES[index].0 != *name);
            let wrong = |named: fn(&Finding) -> bool| {
                findings.iter().enumerate().any(|(index, finding)| is_innocent(index) && named(finding))
            };
            tally.wrong_correlations += u64::from(wrong(|finding| finding.is_significant));
            tally.wrong_culprits += u64::from(wrong(|finding| finding.is_culprit));
            for (index, finding) in findings.iter().enumerate() {
                tally.named[index] += u64::from(finding.is_culprit);
                let true_cost =
                    self.costs.iter().find(|(name, _)| TYPES[index].0 == *name).map_or(0.0, |c| c.1);
                let cost = finding.cost.expect("all types vary");
                tally.covered += u64::from((cost.low..=cost.high).contains(&true_cost));
            }
        }
        tally
    }
}

#[derive(Default, Debug)]
struct Tally {
    /// Seeds in which each type was named a culprit.
    named: Vec<u64>,
    /// Seeds in which some innocent type was significant, or named a culprit.
    wrong_correlations: u64,
    wrong_culprits: u64,
    /// Intervals that hold the true cost, of all types and seeds.
    covered: u64,
}

impl Tally {
    fn found(&self, name: &str) -> u64 {
        self.named[index(name)]
    }
}

fn index(name: &str) -> usize {
    TYPES.iter().position(|(known, _)| *known == name).expect("a type of Fig. 1")
}

#[test]
fn culprits_like_those_of_fig_1_are_found_and_the_innocent_are_not_named() {
    let tally = FIG_1.judge(&Settings::default());
    assert_eq!(tally.found(CATEGORY), SEEDS);
    assert_eq!(tally.found(REGION), SEEDS);
    assert!(tally.wrong_culprits <= SEEDS / 20, "{tally:?}");
    // 95 % of the intervals hold the cost, and they are not much wider than that takes.
    let intervals = SEEDS * TYPES.len() as u64;
    assert!((intervals * 95 / 100..intervals * 99 / 100).contains(&tally.covered), "{tally:?}");
}

#[test]
fn where_nothing_costs_anything_nobody_is_named() {
    let tally = Scene { costs: &[], ..FIG_1 }.judge(&Settings::default());
    assert!(tally.wrong_correlations <= SEEDS / 20, "{tally:?}");
    assert!(tally.wrong_culprits <= SEEDS / 20, "{tally:?}");
}

#[test]
fn without_a_bound_on_false_discoveries_each_type_has_its_own_risk() {
    let tally =
        Scene { costs: &[], ..FIG_1 }.judge(&Settings { false_discovery: false, ..Settings::default() });
    // Sixteen types, each of which is significant and positive with probability α/2.
    assert!((SEEDS / 5..SEEDS / 2).contains(&tally.wrong_correlations), "{tally:?}");
}

/// Innocent requests come with the culprit's: in the counts r is 0.45, 0.64, 0.85 and 0.96.
#[test]
fn a_type_that_only_travels_with_a_culprit_is_told_apart() {
    for with_each in [0.3, 0.5, 1.0, 2.0] {
        let scene = Scene { companion: Some(("BrowseRegions.php", with_each)), ..FIG_1 };
        let tally = scene.judge(&Settings::default());
        assert_eq!(tally.wrong_correlations, SEEDS, "r alone accuses it in every seed");
        assert!(tally.found("BrowseRegions.php") <= SEEDS / 20, "{with_each}: {tally:?}");
        assert!(tally.found(CATEGORY) >= SEEDS * 99 / 100, "{with_each}: {tally:?}");
    }
}

/// A crowd that comes and goes makes all types rise together; noise that lasts looks like a cause.
#[test]
fn types_that_rise_with_the_crowd_are_told_from_those_that_cost_something() {
    for memory in [0.0, 0.8, 0.95] {
        let tally = Scene { crowd: 0.2, memory, ..FIG_1 }.judge(&Settings::default());
        assert_eq!(tally.wrong_correlations, SEEDS, "r alone accuses innocent types in every seed");
        for (name, _) in TYPES.iter().filter(|(name, _)| ![CATEGORY, REGION].contains(name)) {
            assert!(tally.found(name) <= SEEDS / 20, "{memory}, {name}: {tally:?}");
        }
        assert_eq!((tally.found(CATEGORY), tally.found(REGION)), (SEEDS, SEEDS), "{memory}");
    }
}

/// Each type has waves of its own, and the noise has: the textbook's intervals hold 88 % of the costs.
#[test]
fn intervals_allow_for_waves_that_last() {
    let tally = Scene { waves: 0.3, memory: 0.8, costs: &[], ..FIG_1 }.judge(&Settings::default());
    assert!(tally.covered >= SEEDS * TYPES.len() as u64 * 94 / 100, "{tally:?}");
    assert!(2 * tally.wrong_culprits < tally.wrong_correlations, "{tally:?}");
}

#[test]
fn a_figure_that_comes_late_is_found_with_its_lag() {
    let settings = Settings { max_lag: 5, ..Settings::default() };
    let scene = Scene { late: 2, ..FIG_1 };
    let tally = scene.judge(&settings);
    assert_eq!((tally.found(CATEGORY), tally.found(REGION)), (SEEDS, SEEDS));
    let (counts, figure) = scene.play(1);
    let findings = analyse(&counts, &figure, &settings);
    assert_eq!((findings[index(CATEGORY)].lag, findings[index(REGION)].lag), (2, 2));
    let tally = Scene { costs: &[], ..FIG_1 }.judge(&settings);
    assert!(tally.wrong_correlations <= SEEDS / 20, "the best of six lags is corrected for: {tally:?}");
}

#[test]
fn types_that_always_come_together_have_no_cost_of_their_own() {
    let (mut counts, figure) = FIG_1.play(1);
    counts.push(counts[index(CATEGORY)].iter().map(|count| 2.0 * count).collect());
    let findings = analyse(&counts, &figure, &Settings::default());
    for twin in [index(CATEGORY), TYPES.len()] {
        let finding = &findings[twin];
        assert!(finding.is_significant && finding.cost.is_none() && !finding.is_culprit, "{finding:?}");
    }
    assert!(findings[index(REGION)].is_culprit, "the others are judged as before");
}

#[test]
fn what_is_not_enough_data_says_so() {
    let empty = analyse(&[vec![], vec![]], &[], &Settings::default());
    assert!(empty.iter().all(|finding| finding.correlation.is_none() && finding.cost.is_none()));
    let (mut counts, mut figure) = FIG_1.play(1);
    counts[3] = vec![7.0; figure.len()];
    let constant = analyse(&counts, &figure, &Settings::default());
    assert!(constant[3].correlation.is_none() && constant[3].cost.is_none() && !constant[3].is_culprit);
    assert!(constant[3].share > 0.0);
    // Nine intervals of which the figure is known.
    figure[9..].fill(f64::NAN);
    for finding in analyse(&counts, &figure, &Settings::default()) {
        assert!(finding.correlation.is_none() && finding.cost.is_none(), "{finding:?}");
    }
}

#[test]
fn missing_figures_leave_the_intervals_out() {
    let (counts, mut figure) = FIG_1.play(1);
    let every_third: Vec<usize> = (0..figure.len()).step_by(3).collect();
    let without = |column: &[f64]| -> Vec<f64> {
        (0..column.len()).filter(|t| t % 3 != 0).map(|t| column[t]).collect()
    };
    let shorter: Vec<Vec<f64>> = counts.iter().map(|column| without(column)).collect();
    let expected = analyse(&shorter, &without(&figure), &Settings::default());
    every_third.iter().for_each(|&t| figure[t] = f64::NAN);
    let found = analyse(&counts, &figure, &Settings::default());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found.correlation, expected.correlation);
        assert_eq!(found.cost, expected.cost);
        assert_eq!(found.is_culprit, expected.is_culprit);
    }
}

/// More types than the intervals can tell apart: those that matter most take part.
#[test]
fn many_types_and_few_intervals_still_give_the_culprits() {
    let (mut counts, figure) = FIG_1.play(3);
    let mut random = StdRng::seed_from_u64(4);
    for _ in 0..400 {
        counts.push((0..figure.len()).map(|_| poisson(&mut random, 2.0)).collect());
    }
    let findings = analyse(&counts, &figure, &Settings::default());
    let culprits: Vec<usize> = (0..findings.len()).filter(|&index| findings[index].is_culprit).collect();
    assert_eq!(culprits, [index(CATEGORY), index(REGION)]);
    assert_eq!(findings.iter().filter(|finding| finding.cost.is_some()).count(), figure.len() / 4);
}

#[test]
fn with_every_shape_of_input_there_is_a_finding_for_each_type() {
    let odd = [f64::NAN, f64::INFINITY, -1.0, 0.0, 1.0, 1e-300, 1e15, f64::MAX];
    let mut random = StdRng::seed_from_u64(5);
    for _ in 0..2_000 {
        let column = |random: &mut StdRng| -> Vec<f64> {
            let length = random.random_range(0..40);
            (0..length).map(|_| odd[random.random_range(0..odd.len())]).collect()
        };
        let types = random.random_range(0..6);
        let counts: Vec<Vec<f64>> = (0..types).map(|_| column(&mut random)).collect();
        let figure = column(&mut random);
        let settings = Settings { max_lag: random.random_range(0..50), ..Settings::default() };
        let findings = analyse(&counts, &figure, &settings);
        assert_eq!(findings.len(), types);
        for finding in &findings {
            if let Some(found) = finding.correlation {
                assert!((-1.0..=1.0).contains(&found.r) && (0.0..=1.0).contains(&found.p), "{finding:?}");
            }
            if let Some(cost) = finding.cost {
                assert!(0.0 <= cost.low && cost.low <= cost.per_request, "{cost:?}");
                assert!(cost.per_request <= cost.high, "{cost:?}");
            }
        }
    }
}
