//! An adapter for `ctxconf reader` around ProcessContextSelfReader of the crate libdd-library-config.
//!
//! That reader knows only its own process. So the adapter copies what the target has under the names
//! of a context, and the payload, to the same addresses of its own process, asks the reader, and
//! removes the copy. How the copy is made decides nothing: scripts/judge-libdd-reader skips the
//! requirements about moments of reading and about memory of other processes.

use libdd_library_config::otel_process_ctx::ProcessContextSelfReader;
use libdd_trace_protobuf::opentelemetry::proto::common::v1::{
    any_value::Value as Kind, AnyValue, KeyValue,
};
use serde_json::{json, Value};
use std::ffi::{c_void, CString};
use std::io::{self, BufRead, ErrorKind, Write};

const COPIED: usize = 1 << 20; // of one mapping; the rest of the copy is zeros

struct Mapping {
    start: usize,
    end: usize,
    readable: bool,
    name: String,
}

fn mappings(pid: i32) -> Vec<Mapping> {
    let text = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let number = |digits: &str| usize::from_str_radix(digits, 16).unwrap_or(0);
    String::from_utf8_lossy(&text)
        .lines()
        .filter_map(|line| {
            let (start, rest) = line.split_once('-')?;
            let (end, rest) = rest.split_once(' ')?;
            let name = rest
                .splitn(5, ' ')
                .nth(4)
                .unwrap_or("")
                .trim_start()
                .to_string();
            Some(Mapping {
                start: number(start),
                end: number(end),
                readable: rest.starts_with('r'),
                name,
            })
        })
        .collect()
}

/// Bytes of the target, as many as there are.
fn bytes_of(pid: i32, at: usize, size: usize) -> Vec<u8> {
    let mut out = vec![0u8; size];
    let local = libc::iovec {
        iov_base: out.as_mut_ptr().cast::<c_void>(),
        iov_len: size,
    };
    let remote = libc::iovec {
        iov_base: at as *mut c_void,
        iov_len: size,
    };
    let copied = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    out.truncate(copied.max(0) as usize);
    out
}

/// Memory of this process at the addresses of a mapping of the target.
struct Copy {
    at: usize,
    size: usize,
}

impl Copy {
    fn new(pid: i32, m: &Mapping) -> Option<Copy> {
        let size = m.end - m.start;
        let name = m
            .name
            .strip_prefix("/memfd:")
            .map(|n| n.trim_end_matches(" (deleted)"));
        let anonymous = if name.is_none() {
            libc::MAP_ANONYMOUS
        } else {
            0
        };
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE | anonymous;
        let (wanted, protection) = (m.start as *mut c_void, libc::PROT_READ | libc::PROT_WRITE);
        let at = unsafe {
            let fd = match name {
                Some(name) => {
                    libc::memfd_create(CString::new(name).ok()?.as_ptr(), libc::MFD_CLOEXEC)
                }
                None => -1,
            };
            if fd >= 0 {
                libc::ftruncate(fd, size as libc::off_t);
            }
            let at = libc::mmap(wanted, size, protection, flags, fd, 0);
            if fd >= 0 {
                libc::close(fd);
            }
            at
        };
        if at == libc::MAP_FAILED {
            return None;
        }
        let copy = Copy { at: m.start, size };
        let bytes = bytes_of(pid, m.start, size.min(COPIED));
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast::<u8>(), bytes.len());
            if !m.readable || bytes.is_empty() {
                libc::mprotect(at, size, libc::PROT_NONE);
            }
            if let Some(label) = m
                .name
                .strip_prefix("[anon:")
                .and_then(|n| n.strip_suffix(']'))
            {
                let label = CString::new(label).ok()?;
                libc::prctl(0x53564d41, 0, at, size, label.as_ptr());
            }
        }
        Some(copy)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        unsafe { libc::munmap(self.at as *mut c_void, self.size) };
    }
}

/// The mappings with a name like that of a context, and those with the payloads of their headers.
fn copies(pid: i32) -> Vec<Copy> {
    let all = mappings(pid);
    let word =
        |header: &[u8], at: usize| usize::from_ne_bytes(header[at..at + 8].try_into().unwrap());
    let mut payloads = Vec::new();
    for m in all.iter().filter(|m| m.name.contains("OTEL_CTX")) {
        let header = bytes_of(pid, m.start, 32);
        if header.len() == 32 {
            let size = u32::from_ne_bytes(header[12..16].try_into().unwrap()) as usize;
            payloads.push((word(&header, 24), word(&header, 24).saturating_add(size)));
        }
    }
    let is_wanted = |m: &&Mapping| {
        m.name.contains("OTEL_CTX")
            || payloads
                .iter()
                .any(|&(from, to)| m.start < to.max(from.saturating_add(1)) && from < m.end)
    };
    all.iter()
        .filter(is_wanted)
        .filter_map(|m| Copy::new(pid, m))
        .collect()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let at = |i: usize| u32::from(*three.get(i).unwrap_or(&0));
        let word = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * i) & 63) as usize] as char;
            out.push(if i > three.len() { '=' } else { letter });
        }
    }
    out
}

fn value(value: &Option<AnyValue>) -> Value {
    match value.as_ref().and_then(|v| v.value.as_ref()) {
        Some(Kind::StringValue(v)) => json!({ "stringValue": v }),
        Some(Kind::BoolValue(v)) => json!({ "boolValue": v }),
        Some(Kind::IntValue(v)) => json!({ "intValue": v.to_string() }),
        Some(Kind::DoubleValue(v)) if v.is_finite() => json!({ "doubleValue": v }),
        Some(Kind::DoubleValue(v)) if v.is_nan() => json!({"doubleValue": "NaN"}),
        Some(Kind::DoubleValue(v)) if *v > 0.0 => json!({"doubleValue": "Infinity"}),
        Some(Kind::DoubleValue(_)) => json!({"doubleValue": "-Infinity"}),
        Some(Kind::BytesValue(v)) => json!({ "bytesValue": base64(v) }),
        Some(Kind::ArrayValue(v)) => {
            let values: Vec<_> = v
                .values
                .iter()
                .map(|one| self::value(&Some(one.clone())))
                .collect();
            json!({ "arrayValue": { "values": values } })
        }
        Some(Kind::KvlistValue(v)) => json!({ "kvlistValue": { "values": attributes(&v.values) } }),
        _ => json!({}),
    }
}

fn attributes(pairs: &[KeyValue]) -> Vec<Value> {
    pairs
        .iter()
        .map(|one| json!({"key": one.key, "value": value(&one.value)}))
        .collect()
}

fn process(pid: i32) -> Value {
    let _copies = copies(pid);
    match ProcessContextSelfReader::new().and_then(|reader| reader.read()) {
        Ok(message) => {
            let mut context = json!({ "attributes": attributes(&message.extra_attributes) });
            if let Some(resource) = &message.resource {
                context["resource"] = json!({ "attributes": attributes(&resource.attributes) });
            }
            json!({"result": "accept", "context": context})
        }
        Err(error) => json!({"result": match error.kind() {
            ErrorKind::NotFound => "absent",
            ErrorKind::WouldBlock => "retry",
            _ => "reject",
        }}),
    }
}

fn main() {
    for line in io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let mut reply = match request["op"].as_str() {
            Some("hello") => json!({
                "v": 1, "pid": std::process::id(),
                "adapter": {"name": "libdd_reader", "version": env!("CARGO_PKG_VERSION")},
                "sdk": {"name": "libdd-library-config", "version": "5.0.1", "language": "rust"},
                "caps": {"reader.process": {}}}),
            Some("reader.process") => process(request["pid"].as_i64().unwrap_or(0) as i32),
            Some("bye") => json!({}),
            op => json!({"ok": false, "error": {"kind": "unsupported", "message": op}}),
        };
        reply["id"] = request["id"].clone();
        if reply.get("ok").is_none() {
            reply["ok"] = json!(true);
        }
        println!("{reply}");
        io::stdout().flush().unwrap();
        if request["op"] == "bye" {
            break;
        }
    }
}
