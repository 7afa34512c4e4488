package chaos

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/store/postgres/postgrestest"
	"github.com/agl-go/agl/test/chaos/history"
	"github.com/agl-go/agl/test/process"
)

// The flags of the tests; `make chaos` gives the numbers of a long run.
var (
	kills       = flag.Int("kills", 8, "how often a server is killed")
	seedFlag    = flag.Uint64("seed", 0, "what decides what is done; 0 picks one")
	keep        = flag.Bool("keep", false, "keep the history of a run that broke no rule, too")
	historyFile = flag.String("history", "", "the history that TestReplay judges")
)

// aglBinary is the real agl command, built by TestMain.
var aglBinary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(process.Main(m, &aglBinary))
}

// run is one run of the suite: the servers, their database's directory, and the
// history.
type run struct {
	t       *testing.T
	seed    uint64
	random  *rand.Rand
	dir     string // kept with the history when a rule is broken
	servers []*process.Server
	record  *history.Recorder
}

// newRun makes a run whose files outlive a failure.
func newRun(t *testing.T) (*run, *os.File) {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	dir, err := os.MkdirTemp("", "agl-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() || *keep {
			t.Logf("kept: the history in %s, logs and data beside it; judge it again with\n\tgo test ./test/chaos -run Replay -history %s", dir, file.Name())
			return
		}
		process.Search(t, dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return &run{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 0)), dir: dir, record: history.NewRecorder(file)}, file
}

// serve starts a server.
func (r *run) serve(name string, args ...string) *process.Server {
	r.t.Helper()
	return process.Store(r.t, aglBinary, name, r.dir, args...)
}

// settings records what the rules may expect.
func (r *run) settings(args history.Args) {
	r.record.Saw("run", history.Settings, args, history.Reply{})
}

// between returns a random duration between a fifth of d and d.
func (r *run) between(d time.Duration) {
	_ = backoff.Sleep(r.t.Context(), d/5+time.Duration(r.random.Int64N(int64(d-d/5))))
}

// kill kills a server at a random moment and starts it again, n times.
func (r *run) kill(n int) {
	r.t.Helper()
	for range n {
		r.between(time.Second)
		s := r.servers[r.random.IntN(len(r.servers))]
		_ = r.record.Do("nemesis", history.Down, history.Args{Worker: s.Name}, func() (history.Reply, error) {
			s.Kill()
			if r.random.IntN(2) == 0 {
				r.between(300 * time.Millisecond)
			}
			s.Start()
			return history.Reply{}, nil
		})
	}
}

// judge reads the history back and fails for every rule that it breaks.
func judge(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ops, err := history.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	report := history.Check(ops)
	for _, v := range report.Violations {
		t.Error(v)
	}
	t.Logf("%d operations: %s", len(ops), report)
	if report.Rollouts == 0 || report.Spans == 0 {
		t.Error("nothing was done")
	}
}

// finish flushes and judges.
func (r *run) finish(file *os.File) {
	r.t.Helper()
	if err := r.record.Flush(); err != nil {
		r.t.Fatal(err)
	}
	judge(r.t, file.Name())
}

// TestMemory shows that the rules hold if nothing is killed.
func TestMemory(t *testing.T) {
	r, file := newRun(t)
	r.settings(history.Args{StrictFIFO: true, EventLog: true})
	r.servers = []*process.Server{r.serve("store", "--db", "memory:")}
	newLoad(t, r.seed, r.record, r.servers).during(func() {
		_ = backoff.Sleep(t.Context(), 3*time.Second)
	})
	r.finish(file)
}

// TestSQLite kills the server. All acknowledged writes must be there when it is back, with
// either setting of sync: only a power failure would make a difference.
func TestSQLite(t *testing.T) {
	for _, test := range []struct {
		sync  string
		kills int
	}{{"full", *kills}, {"normal", (*kills + 3) / 4}} {
		t.Run(test.sync, func(t *testing.T) {
			r, file := newRun(t)
			r.settings(history.Args{StrictFIFO: true, EventLog: true})
			r.servers = []*process.Server{r.serve("store", "--db", "sqlite:"+filepath.Join(r.dir, "agl.db"), "--sync", test.sync)}
			newLoad(t, r.seed, r.record, r.servers).during(func() { r.kill(test.kills) })
			r.finish(file)
		})
	}
}

// TestPostgres kills two servers of one database, and now and then the database,
// whose commits wait for the disk.
func TestPostgres(t *testing.T) {
	r, file := newRun(t)
	// The queue is not strictly first in, first out: a server skips rollouts that another one has locked.
	r.settings(history.Args{EventLog: true})
	database, err := postgrestest.Start(t.Context(), postgrestest.Config{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := database.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	url, err := database.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"store-0", "store-1"} {
		r.servers = append(r.servers, r.serve(name, "--db", url))
	}
	restarts := max(1, *kills/10)
	newLoad(t, r.seed, r.record, r.servers).during(func() {
		for range restarts {
			r.kill((*kills + restarts - 1) / restarts)
			r.between(time.Second)
			r.restart(database)
		}
	})
	r.finish(file)
}

// restart kills PostgreSQL, like a crash, and starts it again.
func (r *run) restart(database *postgrestest.Server) {
	r.t.Helper()
	r.record.Note("nemesis", "kill the database")
	if err := database.Kill(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.between(time.Second)
	if err := database.Resume(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.record.Note("nemesis", "started the database")
}

// TestReplay judges the history in the file of the flag -history.
func TestReplay(t *testing.T) {
	if *historyFile == "" {
		t.Skip("no -history FILE")
	}
	judge(t, *historyFile)
}
