/*
 * Both programs in one object, so that they share the rules.
 *
 * build.rs of crates/kernel compiles it twice: with FRAGS for kernels from 5.18 on, which give the program
 * jumbo frames in several buffers, and without.
 */
#include "syn_police.bpf.c"
#include "prioritise.bpf.c"

char LICENSE[] SEC("license") = "Apache-2.0";
