//! The example's program, as a person runs it.

use std::process::{Command, Output};

use crate::world::{KINDS, Kind, World};

fn run(world: &World, arguments: [&str; 2]) -> Output {
    let kind = if world.kind == Kind::Postgres { "postgres" } else { "sqlite" };
    Command::new(env!("CARGO_BIN_EXE_keyclaim-example-sql"))
        .args([kind, &world.place])
        .args(arguments)
        .current_dir(world.folder())
        .output()
        .expect("it is built")
}

#[test]
fn the_program_run_twice_with_one_key_places_one_order() {
    for kind in KINDS {
        let mut world = World::new(kind);
        for _ in 0..2 {
            let told = run(&world, ["key-1", "2 apples"]);
            assert_eq!(String::from_utf8_lossy(&told.stdout), "order 1\n", "{told:?}");
        }
        assert_eq!(run(&world, ["key-2", "2 apples"]).stdout, b"order 2\n");
        assert_eq!(world.order_count(), 2, "{kind:?}");
        let told = run(&world, ["key-1", "3 apples"]);
        assert_eq!(String::from_utf8_lossy(&told.stderr), "no order: the store says mismatch of this key\n");
        assert_eq!((told.status.code(), world.order_count()), (Some(1), 2), "{kind:?}");
    }
}
