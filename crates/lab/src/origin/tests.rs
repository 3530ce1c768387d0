//! The origin over real sockets.
