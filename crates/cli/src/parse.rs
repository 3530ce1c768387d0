//! Values of options that several subcommands share.

/// Largest seed of a scenario. A scenario's integers are TOML's, which have 64 bits with a sign.
pub const MAX_SEED: u64 = i64::MAX as u64;

/// A key and its value, as `--set` takes them.
pub fn assignment(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.trim().into(), value.trim().into()))
}
