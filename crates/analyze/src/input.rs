//! Files to read: plain, gzip or zstd, told by their first bytes; `-` is standard input.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Other compressions that logs are rotated with: their first bytes and the program that undoes them.
const OTHERS: [(&[u8], &str); 2] = [(b"BZh", "bzip2 -dc"), (b"\xfd7zXZ\0", "xz -dc")];

/// Told of the bytes that were read from a file, before they are decompressed.
pub type OnRead<'a> = &'a dyn Fn(u64);

/// Opens a file. `path` `-` is standard input.
///
/// # Errors
/// It cannot be read, or its compression is none of those that are known.
pub fn open<'a>(path: &Path, on_read: OnRead<'a>) -> Result<Box<dyn Read + 'a>, String> {
    let describe = |e: io::Error| format!("{}: {e}", path.display());
    if path == Path::new("-") {
        return decoded(Counted { from: io::stdin().lock(), on_read })
            .map_err(|e| format!("standard input: {e}"));
    }
    let file = File::open(path).map_err(describe)?;
    // Reading from a directory fails later, with a message that names no file.
    if file.metadata().is_ok_and(|meta| meta.is_dir()) {
        return Err(format!("{}: expected a file, this is a directory", path.display()));
    }
    decoded(Counted { from: file, on_read }).map_err(describe)
}

/// Bytes that [`open`] will read, for a progress bar; 0 if nobody knows.
pub fn size(path: &Path) -> u64 {
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map_or(0, |meta| meta.len())
}

fn decoded<'a>(mut from: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut head = Vec::with_capacity(8);
    from.by_ref().take(6).read_to_end(&mut head)?;
    if let Some((_, program)) = OTHERS.iter().find(|(magic, _)| head.starts_with(magic)) {
        let hint = format!("expected plain text, gzip or zstd; decompress it with `{program}` and read `-`");
        return Err(io::Error::new(io::ErrorKind::InvalidData, hint));
    }
    let (gzip, zstd) = (head.starts_with(&GZIP), head.starts_with(&ZSTD));
    let whole = Cursor::new(head).chain(from);
    Ok(if gzip {
        Box::new(MultiGzDecoder::new(io::BufReader::with_capacity(64 << 10, whole)))
    } else if zstd {
        Box::new(zstd::Decoder::new(whole)?)
    } else {
        Box::new(whole)
    })
}

struct Counted<'a, R> {
    from: R,
    on_read: OnRead<'a>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(into)?;
        (self.on_read)(read as u64);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        decoded(bytes)?.read_to_end(&mut out)?;
        Ok(out)
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).expect("memory");
        encoder.finish().expect("memory")
    }

    #[test]
    fn compression_is_told_by_the_first_bytes() {
        let text = b"one\ntwo\n".repeat(5_000);
        let zstd = zstd::encode_all(text.as_slice(), 1).expect("memory");
        for bytes in [text.clone(), gzip(&text), zstd] {
            assert_eq!(read(&bytes).expect("readable"), text);
        }
        for short in [&b""[..], b"a", b"\x1f"] {
            assert_eq!(read(short).expect("readable"), short);
        }
    }

    #[test]
    fn rotated_files_may_be_joined() {
        let joined = [gzip(b"one\n"), gzip(b"two\n")].concat();
        assert_eq!(read(&joined).expect("readable"), b"one\ntwo\n");
        let frame = |text: &[u8]| zstd::encode_all(text, 1).expect("memory");
        assert_eq!(read(&[frame(b"one\n"), frame(b"two\n")].concat()).expect("readable"), b"one\ntwo\n");
    }

    #[test]
    fn a_cut_or_unknown_compression_is_an_error() {
        let whole = gzip(&b"line\n".repeat(1_000));
        assert!(read(&whole[..whole.len() - 9]).is_err());
        let bzip = read(b"BZh91AY&SY").expect_err("unknown").to_string();
        assert!(bzip.contains("gzip or zstd") && bzip.contains("bzip2 -dc"), "{bzip}");
    }

    #[test]
    fn a_missing_file_and_a_directory_are_named() {
        let missing = open(Path::new("/nowhere/access.log"), &|_| {}).err().expect("missing");
        assert!(missing.starts_with("/nowhere/access.log: "), "{missing}");
        let directory = open(&std::env::temp_dir(), &|_| {}).err().expect("a directory");
        assert!(directory.contains("expected a file"), "{directory}");
    }
}
