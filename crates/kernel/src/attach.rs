//! The choice between XDP and nftables.

use crate::error::KernelError;
use crate::nft::Nft;
use crate::policer::Policer;
use crate::policing::SynPolicing;
use crate::types::{Mechanism, PolicerConfig};

/// Polices by the mechanism that `config` asks for. `Auto` takes nftables where XDP does not attach to all
/// of the interfaces, and says why in [`SynPolicing::notes`].
pub fn attach(config: &PolicerConfig) -> Result<Box<dyn SynPolicing>, KernelError> {
    let by_xdp = |config| Policer::attach(config).map(|policer| Box::new(policer) as Box<dyn SynPolicing>);
    match config.mechanism {
        Mechanism::Xdp => by_xdp(config),
        Mechanism::Nftables => Ok(Box::new(Nft::attach(config)?)),
        Mechanism::Auto => match by_xdp(config) {
            Err(why @ KernelError::NoInterface(_)) => Err(why),
            Err(why) => {
                let nft = Nft::attach(config);
                let mut nft =
                    nft.map_err(|nft| KernelError::Neither { xdp: why.to_string(), nft: nft.to_string() })?;
                nft.note(format!("policed by nftables, since XDP does not work: {why}"));
                Ok(Box::new(nft))
            }
            attached => attached,
        },
    }
}
