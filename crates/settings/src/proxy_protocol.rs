//! Names of the PROXY protocol's versions (docs/tls.md).

named! {
    /// Headers of the PROXY protocol that are accepted.
    pub enum ProxyProtocol {
        #[default] Off = "off",
        V1 = "v1",
        V2 = "v2",
        /// Either version.
        Any = "any",
    }

    /// The header of the PROXY protocol that connections begin with.
    pub enum ProxyHeader {
        #[default] Off = "off",
        V1 = "v1",
        V2 = "v2",
    }
}
