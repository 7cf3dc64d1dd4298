//! A PostgreSQL server of this test run's own: a new cluster in a temporary folder, a socket in it, no port.

use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use postgres::{Client, NoTls};

/// Arbitrary: a start takes about a second on a quiet machine.
const START: Duration = Duration::from_mins(1);

/// Ends the server and removes its folder when the test run ends, however it ends: its input is a pipe that
/// only the test run holds. A TERM for the whole process group only ends the reading.
const KEEPER: &str = r#"trap : TERM; folder=$1; shift; "$@" </dev/null & server=$!
read -r _; kill -INT "$server"
while kill -0 "$server" 2>/dev/null; do wait "$server"; done
rm -rf "$folder""#;

struct Server {
    folder: PathBuf,
    user: String,
    /// Never waited for: it ends with this process.
    _keeper: Child,
}

/// How to connect to the run's server, which is started by the first who asks.
pub(crate) fn conninfo() -> String {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let server = SERVER.get_or_init(start);
    format!("host={} user={} dbname=postgres", server.folder.display(), server.user)
}

fn start() -> Server {
    let folder = tempfile::Builder::new().prefix("keyclaim-pg-").tempdir_in("/tmp").expect("a folder").keep();
    let owner = owner();
    if let Some((_, uid, gid)) = &owner {
        chown(&folder, Some(*uid), Some(*gid)).expect("root may");
    }
    let user = owner.as_ref().map_or_else(|| "keyclaim".into(), |(name, ..)| name.clone());
    let as_owner = |mut command: Command| {
        command.current_dir("/");
        if let Some((_, uid, gid)) = &owner {
            command.uid(*uid).gid(*gid);
        }
        command
    };
    let data = folder.join("data");
    let mut initdb = as_owner(Command::new(program("initdb")));
    initdb.args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "-U", &user, "-D"]).arg(&data);
    let made = initdb.output().expect("initdb can be started");
    assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));

    let log = fs::File::create(folder.join("log")).expect("a file");
    let mut keeper = as_owner(Command::new("sh"));
    keeper.args(["-c", KEEPER, "sh"]).arg(&folder).arg(program("postgres")).arg("-D").arg(&data);
    keeper.arg("-k").arg(&folder).args(["-c", "listen_addresses="]);
    // No power is cut here: what is killed are processes, whose writes the kernel has.
    for setting in ["fsync=off", "autovacuum=off", "shared_buffers=16MB", "max_connections=50"] {
        keeper.args(["-c", setting]);
    }
    let log_too = log.try_clone().expect("a file");
    let keeper = keeper.stdin(Stdio::piped()).stdout(log).stderr(log_too).spawn().expect("sh can be started");
    let server = Server { folder, user, _keeper: keeper };
    wait_for(&server);
    server
}

fn wait_for(server: &Server) {
    let info = format!("host={} user={} dbname=postgres", server.folder.display(), server.user);
    let start = Instant::now();
    while let Err(error) = Client::connect(&info, NoTls) {
        let log = || fs::read_to_string(server.folder.join("log")).unwrap_or_default();
        assert!(start.elapsed() < START, "PostgreSQL does not start: {error}\n{}", log());
        thread::sleep(Duration::from_millis(20));
    }
    let _ = writeln!(std::io::stderr(), "PostgreSQL runs in {}", server.folder.display());
}

/// PostgreSQL refuses to run as root: then another user has to own the cluster.
fn owner() -> Option<(String, u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("root has users");
    let found = ["postgres", "nobody"].iter().find_map(|name| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2).map(|id| id.parse().ok());
        Some(((*name).to_owned(), ids.next()??, ids.next()??))
    });
    Some(found.expect("there is a user postgres or nobody to run PostgreSQL as"))
}

/// On the path, or where Debian puts it.
fn program(name: &str) -> PathBuf {
    let on_path =
        env::var_os("PATH").into_iter().flat_map(|path| env::split_paths(&path).collect::<Vec<_>>());
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = debian.map(|version| version.path().join("bin")).collect();
    folders.sort();
    let is_there = |folder: PathBuf| Some(folder.join(name)).filter(|file: &PathBuf| Path::exists(file));
    let found = folders.into_iter().rev().chain(on_path).find_map(is_there);
    found.unwrap_or_else(|| {
        panic!("{name} is missing: install PostgreSQL (Debian: apt-get install postgresql)")
    })
}
