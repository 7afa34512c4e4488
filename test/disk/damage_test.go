package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/sqlite"
	"github.com/agl-go/agl/test/process"
)

// The files with data that a killed server leaves.
const (
	mainFile = "agl.db"
	logFile  = "agl.db-wal"
)

// database makes the files of a server that was killed. Half of the data is in the main file,
// the other half in its log.
func database(t *testing.T, random *rand.Rand, dir string) *writer {
	t.Helper()
	server := process.Store(t, aglBinary, "store", dir, "--db", "sqlite:"+filepath.Join(dir, mainFile))
	w := &writer{t: t, store: connect(t, server), random: random}
	const half = 150
	for n := range 2 * half {
		if n == half {
			server.Stop()
			server.Start()
		}
		if err := w.write(); err != nil {
			t.Fatal(err)
		}
	}
	server.Kill()
	for _, name := range []string{mainFile, logFile} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() < 100<<10 {
			t.Fatalf("%s: %v, %v", name, info, err)
		}
	}
	return w
}

// contents is everything that a database serves: spans by id, and all else as JSON documents.
type contents struct {
	spans map[string]agl.Span
	rest  map[string]string
	marks map[string]int // by attempt
	errs  []error        // errors of reads
}

// read opens a database and reads everything. The error is that of opening.
func read(ctx context.Context, path string) (_ *contents, err error) {
	driver, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return nil, err
	}
	engine, err := store.New(ctx, store.Config{Driver: driver})
	if err != nil {
		return nil, errors.Join(err, driver.Close(ctx))
	}
	c := &contents{spans: map[string]agl.Span{}, rest: map[string]string{}, marks: map[string]int{}}
	note := func(err error) {
		if err != nil {
			c.errs = append(c.errs, err)
		}
	}
	defer func() { note(engine.Close(ctx)) }()
	rollouts, err := engine.QueryRollouts(ctx, agl.QueryRolloutsParams{})
	note(err)
	for _, r := range rollouts.Items {
		c.rest["rollout "+r.RolloutID] = string(r.AppendJSON(nil))
		attempts, err := engine.QueryAttempts(ctx, agl.QueryAttemptsParams{RolloutID: r.RolloutID})
		note(err)
		for _, a := range attempts.Items {
			c.rest["attempt "+a.AttemptID] = string(a.AppendJSON(nil))
			if raw, found := rawjson.Get(a.Metadata, "mark"); found {
				var mark int
				note(rawjson.Unmarshal(raw, &mark))
				c.marks[a.AttemptID] = mark + 1
			}
		}
		spans, err := engine.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: r.RolloutID})
		note(err)
		for _, s := range spans.Items {
			c.spans[s.SpanID] = s
		}
	}
	workers, err := engine.QueryWorkers(ctx, agl.QueryWorkersParams{})
	note(err)
	for _, worker := range workers.Items {
		c.rest["worker "+worker.WorkerID] = string(worker.AppendJSON(nil))
	}
	return c, nil
}

// named reports whether an error names the damaged file and says what to do.
func named(err error, path string) bool {
	return strings.Contains(err.Error(), path) && strings.Contains(err.Error(), "agl db check")
}

// damage damages a copy of a file, and describes the damage.
func damage(random *rand.Rand, path string) (how string, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	at := random.IntN(len(content))
	switch random.IntN(4) {
	case 0:
		how, content = fmt.Sprintf("cut off at %d of %d", at, len(content)), content[:at]
	case 1:
		bit := byte(1) << random.IntN(8)
		how, content[at] = fmt.Sprintf("a bit of byte %d changed", at), content[at]^bit
	case 2:
		n := min(1+random.IntN(64), len(content)-at)
		for i := range n {
			content[at+i] = byte(random.Uint32())
		}
		how = fmt.Sprintf("%d bytes at %d written over", n, at)
	default: // like a disk that has lost a block
		at -= at % 4096
		clear(content[at:min(at+4096, len(content))])
		how = fmt.Sprintf("the block at %d lost", at)
	}
	return how, os.WriteFile(path, content, 0o600)
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o600)
}

// found counts how damages were noticed, if they were.
type found struct{ opening, reading, prefix, check, fields, nothing int }

func (f found) String() string {
	return fmt.Sprintf("refused when opened %d, when read %d; the log's damage cost its end %d; only seen by the check %d; "+
		"a field without a checksum %d; without effect %d", f.opening, f.reading, f.prefix, f.check, f.fields, f.nothing)
}

// TestDamage damages the files of a killed server. Whatever the damage, the data that is
// served must be the data that was sent. If the log is damaged, everything up to an intact
// commit is served. In any other case an error names the file, and the check finds the
// damage that no read can notice.
func TestDamage(t *testing.T) {
	random := seed(t)
	dir := process.Dir(t)
	w := database(t, random, dir)
	whole := filepath.Join(t.TempDir(), mainFile)
	for _, name := range []string{mainFile, logFile} {
		if err := copyFile(filepath.Join(dir, name), filepath.Join(filepath.Dir(whole), name)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := read(t.Context(), whole)
	if err != nil || len(want.errs) > 0 || len(want.spans) != len(w.sent) {
		t.Fatalf("the undamaged files: %v %v, %d of %d spans", err, want, len(want.spans), len(w.sent))
	}
	if problems, err := check(t.Context(), whole); err != nil || problems != "" {
		t.Fatalf("the undamaged files: %v %s", err, problems)
	}
	var counts found
	for n := range *damages {
		c := damaged{t: t, writer: w, want: want, log: n%2 == 0, path: filepath.Join(t.TempDir(), mainFile)}
		for _, name := range []string{mainFile, logFile} {
			if err := copyFile(filepath.Join(dir, name), filepath.Join(filepath.Dir(c.path), name)); err != nil {
				t.Fatal(err)
			}
		}
		target := c.path
		if c.log {
			target += "-wal"
		}
		how, err := damage(random, target)
		if err != nil {
			t.Fatal(err)
		}
		c.how = filepath.Base(target) + ", " + how
		c.judge(&counts, n%20 < 2)
		if t.Failed() {
			break
		}
	}
	t.Log(counts)
}

// damaged is a copy of the files with one damage.
type damaged struct {
	t      *testing.T
	writer *writer
	want   *contents
	path   string
	how    string
	log    bool // the log was damaged, not the main file
}

func (c *damaged) errorf(format string, args ...any) {
	c.t.Helper()
	c.t.Errorf("%s: %s", c.how, fmt.Sprintf(format, args...))
}

func (c *damaged) judge(counts *found, binary bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), longest)
	defer cancel()
	// Opening may write, so the check gets a copy of its own.
	problems, err := check(ctx, c.path)
	if err != nil {
		problems += err.Error()
		if !strings.Contains(err.Error(), c.path) {
			c.errorf("the check fails without the file's name: %v", err)
		}
	}
	if binary {
		out, err := exec.CommandContext(ctx, aglBinary, "db", "check", "--db", "sqlite:"+c.path).CombinedOutput()
		if (err == nil) != (problems == "") || err != nil && !strings.Contains(string(out), c.path) {
			c.errorf("agl db check: %v\n%s\nwant, with the file's name: %s", err, out, problems)
		}
		c.serve(ctx)
	}
	got, err := read(ctx, c.path)
	if err != nil {
		counts.opening++
		if !named(err, c.path) {
			c.errorf("opening it fails without the file's name or advice: %v", err)
		}
		return
	}
	for _, err := range got.errs {
		if !named(err, c.path) {
			c.errorf("reading it fails without the file's name or advice: %v", err)
		}
	}
	for id, span := range got.spans {
		var n int
		if _, err := fmt.Sscanf(id, "%06d", &n); err != nil || n >= len(c.writer.sent) || !same(&span, &c.writer.sent[n]) {
			c.errorf("span %s is served and is not what was sent", id)
		}
	}
	switch {
	case len(got.errs) > 0:
		counts.reading++
		if problems == "" {
			c.errorf("the check finds nothing; reading says %v", got.errs[0])
		}
	case len(got.spans) == len(c.want.spans) && maps.Equal(got.rest, c.want.rest):
		counts.nothing++
	case c.log:
		counts.prefix++
		c.checkPrefix(got)
	case problems != "":
		counts.check++
	case len(got.spans) == len(c.want.spans) && len(got.rest) == len(c.want.rest):
		// A wrong time of an attempt, or the like, cannot be noticed.
		counts.fields++
	default:
		c.errorf("it serves %d of %d spans and %d of %d other things; neither a read nor the check finds anything wrong",
			len(got.spans), len(c.want.spans), len(got.rest), len(c.want.rest))
	}
}

// checkPrefix fails unless exactly the data up to some commit is served.
func (c *damaged) checkPrefix(got *contents) {
	c.t.Helper()
	n := len(got.spans)
	for id := range got.spans {
		if id >= fmt.Sprintf("%06d", n) {
			c.errorf("%d spans are there, and span %s is one of them", n, id)
		}
	}
	// The mark of a span is the next commit after it.
	for i := range n {
		s := &c.writer.sent[i]
		first := i / perRollout * perRollout
		latest := min(n, first+perRollout)
		before := latest - 1 // when the commit of the latest mark is lost
		if before == first {
			before = 0 // there was none before it
		}
		if mark := got.marks[s.AttemptID]; mark != latest && (mark != before || latest != n) {
			c.errorf("%d spans are there, and attempt %s, whose last is %d, has the mark %d", n, s.AttemptID, latest-1, mark-1)
			return
		}
	}
	if rollouts := (n + perRollout - 1) / perRollout; len(got.marks) > rollouts {
		c.errorf("%d spans are there and %d attempts with marks", n, len(got.marks))
	}
}

// check checks the files and returns what is wrong with them, "" for nothing.
func check(ctx context.Context, path string) (problems string, err error) {
	database, err := sqlite.OpenDatabase(ctx, path)
	if err != nil {
		return "", err
	}
	var all strings.Builder
	err = database.Check(ctx, func(p driver.Problem) { fmt.Fprintf(&all, "%s: %s\n", p.Where, p.What) })
	return all.String(), errors.Join(err, database.Close())
}

// serve starts the real server on a copy of the files. It must serve, or end with the same
// error as the driver.
func (c *damaged) serve(ctx context.Context) {
	c.t.Helper()
	dir := c.t.TempDir()
	path := filepath.Join(dir, mainFile)
	for _, suffix := range []string{"", "-wal"} {
		if err := copyFile(c.path+suffix, path+suffix); err != nil {
			c.t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(ctx, aglBinary, "store", "--port", "0", "--db", "sqlite:"+path)
	output := &listening{cmd: cmd}
	cmd.Stderr = output
	if err := cmd.Run(); err != nil && !output.stopped && !named(errors.New(output.buf.String()), path) {
		c.errorf("agl store ends without the file's name or advice: %v\n%s", err, output.buf.String())
	}
}

// listening ends a server as soon as it says that it listens.
type listening struct {
	cmd     *exec.Cmd
	buf     bytes.Buffer
	stopped bool
}

func (l *listening) Write(p []byte) (int, error) {
	n, err := l.buf.Write(p)
	if !l.stopped && bytes.Contains(l.buf.Bytes(), []byte("listens")) {
		l.stopped = true
		err = errors.Join(err, l.cmd.Process.Kill())
	}
	return n, err
}
