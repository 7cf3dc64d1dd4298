//! Writes the seeds into the corpora: `cargo run --manifest-path fuzz/Cargo.toml --bin seeds`.

fn main() -> std::io::Result<()> {
    println!("{} seeds", keyclaim_fuzz::seeds::write()?);
    Ok(())
}
