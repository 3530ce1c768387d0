//! Tidegate's test bench.
