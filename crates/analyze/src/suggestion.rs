//! The configuration that throttles the culprits, by the rule that the gate has too
//! (`tidegate_core::correlate::suggestion`).

use tidegate_core::correlate::TypeName;
use tidegate_core::correlate::suggestion::{Culprit, Situation, suggest};

use crate::analysis::{Report, Row};
use crate::types::{By, OTHERS};

/// TOML for the gate's configuration file; `None`: no culprit is a path or a class.
pub fn toml(report: &Report) -> Option<String> {
    let culprits: Vec<&Row> = report.culprits().filter(|row| row.name != OTHERS).collect();
    if culprits.is_empty() {
        return None;
    }
    let busy = report.busy_intervals();
    let mean = busy.iter().map(|at| report.figure_values[*at]).sum::<f64>() / busy.len().max(1) as f64;
    let situation = Situation { mean, most: report.figure_max(), red: None };
    let seconds = report.grid.interval_us as f64 / 1e6;
    let each: Vec<_> = culprits
        .iter()
        .map(|row| Culprit {
            per_s: row.busy_rate,
            cost: row.finding.cost.map(|cost| cost.per_request * seconds),
        })
        .collect();
    let name = |row: &&Row| match report.by {
        By::Path => TypeName::Path(row.name.as_str().into()),
        By::Class => TypeName::Class(row.name.as_str().into()),
    };
    suggest(&situation, &each, culprits.iter().map(name).collect()).toml(&report.figure)
}
