package runfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/engine"
	"github.com/agl-go/agl/trainer/tracker"
)

// Error is the mistakes in a file, in the order of its lines. It matches
// agl.ErrInvalid.
type Error = yamlfile.Error

// Part is a part of a run that another process may run.
type Part string

// The parts.
const (
	PartAgent     Part = "agent"     // with its program and its folder
	PartAlgorithm Part = "algorithm" // with the files of tasks and prompts
)

// Options says for which process a file is read. The zero value reads the file of a run
// that this process runs alone.
type Options struct {
	// Algorithms are those that the file can name; nil means [algorithms.All].
	Algorithms []algorithms.Kind
	// Elsewhere are the parts that other processes run. The files that only they need
	// may be missing.
	Elsewhere []Part
	// Output, if not empty, takes the place of the folder that the file names or has by default.
	Output string
}

// Read reads the file at path. Mistakes in the file are an *Error; for a file that
// cannot be read see [ReadText].
func Read(path string, o Options) (*File, error) {
	data, err := ReadText(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, filepath.Dir(path), o)
}

// ReadText reads the text of the file at path. A file that is not there is
// agl.ErrNotFound, and a folder agl.ErrInvalid.
func ReadText(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, agl.Errorf(agl.CodeNotFound, "there is no run file %s", path)
	}
	if info, failed := os.Stat(path); failed == nil && info.IsDir() {
		return nil, agl.Errorf(agl.CodeInvalid, "%s is a folder; name the run file in it", path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the run file: %w", err)
	}
	return data, nil
}

// Parse reads a file whose relative paths start from dir; empty means the working
// directory. The name is for errors, which are *Error, and for the default of
// Output. The files and the program that it names must exist.
func Parse(name string, data []byte, dir string, o Options) (*File, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find the folder of the run file: %w", err)
	}
	document := yamlfile.Document{
		Name: name, Data: data, Dir: dir, Empty: "it must at least have agent, data and algorithm",
		Elsewhere: slices.Contains(o.Elsewhere, PartAlgorithm),
	}
	base := filepath.Base(name)
	d := &draft{
		file: &File{}, kinds: o.Algorithms, dir: dir, noAgent: slices.Contains(o.Elsewhere, PartAgent), elsewhere: document.Elsewhere,
		defaultOutput: filepath.Join(dir, "runs", strings.TrimSuffix(base, filepath.Ext(base))),
	}
	if o.Output != "" {
		if d.output, err = filepath.Abs(o.Output); err != nil {
			return nil, fmt.Errorf("the output folder: %w", err)
		}
	}
	if err := document.Read(declare(d)); err != nil {
		return nil, err
	}
	d.file.Output = cmp.Or(d.output, d.file.Output, d.defaultOutput)
	return d.file, nil
}

// Schema returns the JSON Schema of a run file that can name the algorithms of agl.
func Schema() jsontext.Value {
	return yamlfile.Schema("agl train", "What `agl train FILE` runs. Relative paths start from the folder of the file.", declare(&draft{file: &File{}}))
}

// declare declares the whole file.
func declare(d *draft) yamlfile.Value {
	if d.kinds == nil {
		d.kinds = algorithms.All()
	}
	names := make([]string, len(d.kinds))
	for i, kind := range d.kinds {
		names[i] = kind.Name
	}
	slices.Sort(names)
	key, f := yamlfile.Key, d.file
	return yamlfile.Mapping(
		key("agent", "The program that does the tasks. It may be left out if runners elsewhere join the run (store.listen, store.url).", d.agent(&f.Agent)),
		key("data", "The tasks.", d.data(&f.Data)),
		key("prompts", "Prompt templates, which agents find among their resources under these names.", prompts(&f.Prompts)),
		key("proxy", "The LLM proxy, which stands in front of the models and records their calls. With an engine there always is one.", d.proxy(&f.Proxy)),
		key("agents", "The agents of a rollout that have models of their own, by name. All are models of the engine, and begin with the same weights. Without it there is one.", roles(&f.Roles)),
		key("engine", "Serves a model of the run's own, and trains its weights.", d.engine(&f.Engine)),
		key("algorithm", "What learns.", d.algorithm()).Required(", one of "+strings.Join(names, ", ")),
		key("store", "Where the run is stored.", d.store(&f.Store)),
		key("trackers", "Where metrics go besides metrics.jsonl.", trackers(&f.Trackers)),
		key("output", "The folder of results; by default runs/NAME beside the file NAME.yaml.", yamlfile.Path(&f.Output)),
		key("seed", "Decides every random choice of the run.", yamlfile.Integer(&f.Seed)).Default(0),
	).Check(d.across)
}

// algorithm declares the algorithms, of which the file must name one.
func (d *draft) algorithm() yamlfile.Value {
	fields := make([]yamlfile.Field, len(d.kinds))
	for i, kind := range d.kinds {
		value, a := kind.Keys(d.dir)
		fields[i] = yamlfile.Key(kind.Name, kind.Doc, value.Check(func(s *yamlfile.Scope) { d.file.Algorithm, d.settled = a, s.Clean() }))
	}
	return yamlfile.OneOf(fields...)
}

// draft is a file that is being read.
type draft struct {
	file    *File
	kinds   []algorithms.Kind
	dir     string // of the file, absolute
	noAgent bool   // on this machine
	settled bool   // the settings of the algorithm have no mistake
	// elsewhere is true if another process runs the algorithm, and with it the engine.
	elsewhere bool

	output        string // takes the place of the file's; may be empty
	defaultOutput string
}

// across checks the parts of the file against each other.
func (d *draft) across(s *yamlfile.Scope) {
	f := d.file
	live := f.Algorithm != nil && f.Algorithm.Needs().NoTasks || s.Given("algorithm.apo.live") // which may have a mistake
	if !live && !s.Given("data") && !d.elsewhere {
		s.Failf("data", "missing, the tasks to train with")
	}
	if s.Given("data") && !s.Given("data.train") && (!live || s.Given("data.val_share")) {
		s.Failf("data.train", "missing, the file of the tasks to train with")
	}
	if live && s.Given("data.val") && !s.Given("agent") && !s.Given("store.listen") && !s.Given("store.url") {
		s.Failf("data.val", "there is nobody to do these tasks: give agent, the program that does them, or store.listen or store.url, so that runners elsewhere can join")
	}
	if !live && !s.Given("agent") && !s.Given("store.listen") && !s.Given("store.url") {
		s.Failf("agent", "missing, the program that does the tasks; without it, give store.listen or store.url, so that runners elsewhere can join")
	}
	for _, key := range []string{"algorithm.grpo.validation", "algorithm.sft.val_n"} {
		if s.Given(key) && s.Given("data") && !s.Given("data.val") && !s.Given("data.val_share") {
			s.Failf(key, "there are no validation tasks: give data.val, or data.val_share")
		}
	}
	if !s.Given("data.seed") {
		f.Data.Seed = f.Seed
	}
	folder := cmp.Or(f.Output, d.defaultOutput)
	if info, err := os.Stat(folder); d.output == "" && !d.elsewhere && (err == nil && !info.IsDir() || errors.Is(err, syscall.ENOTDIR)) {
		s.Failf("output", "got %s, which is a file or below one, must be a folder, which need not exist", folder)
	}
	if s.Given("engine") && !s.Given("proxy") {
		f.Proxy = &Proxy{}
	}
	if sessions := d.sessions(); live && sessions != nil && sessions.IdleTimeout > 0 && !s.Given("proxy.sessions.reward_window") {
		sessions.RewardWindow = DefaultRewardWindow
	}
	// An algorithm that brings its model registers it when it has begun.
	brings := f.Algorithm != nil && f.Algorithm.Needs().OwnModel && s.Given("proxy.model")
	if s.Given("proxy") && !s.Given("proxy.models") && !s.Given("engine") && !brings {
		s.Failf("proxy", "there is no model: give models, or an engine that serves one")
	}
	d.checkRoles(s)
	if f.Algorithm != nil {
		d.needs(s, "algorithm."+f.Algorithm.Name(), f.Algorithm.Needs())
	}
	if f.Proxy != nil && f.Proxy.Config.Sessions.Judge != nil {
		judge := f.Proxy.Config.Sessions.Judge.Model
		own := s.Given("engine") && judge == cmp.Or(f.Proxy.Model, engine.DefaultName)
		if !own && !slices.ContainsFunc(f.Proxy.Config.Models, func(m proxy.Model) bool { return m.Name == judge }) {
			s.Failf("proxy.sessions.rewards.judge", "got the model %s, but proxy.models has none of that name", judge)
		}
	}
	if s.Given("proxy.model") && f.Proxy != nil && !brings {
		d.modelName(s)
	}
}

// DefaultRewardWindow is how long a session waits for its reward in a run that learns from sessions: without a window it would be read
// before its reward is there, and nothing learned from it. A session with a reward does not wait.
const DefaultRewardWindow = 24 * time.Hour

// sessions are those of the proxy; nil without one.
func (d *draft) sessions() *proxy.Sessions {
	if d.file.Proxy == nil {
		return nil
	}
	return &d.file.Proxy.Config.Sessions
}

// modelName checks the name of the model that agents are told to request.
func (d *draft) modelName(s *yamlfile.Scope) {
	p := d.file.Proxy
	listed := slices.ContainsFunc(p.Config.Models, func(m proxy.Model) bool { return m.Name == p.Model })
	switch {
	case s.Given("engine") && listed:
		s.Failf("proxy.model", "got %s, a name in models, but it is the name of the engine's model, must be another", p.Model)
	case !s.Given("engine") && !listed && s.Given("proxy.models"):
		s.Failf("proxy.model", "got %s, but models has none of that name", p.Model)
	}
}

// needs checks that the file provides what its algorithm, at a path, needs.
func (d *draft) needs(s *yamlfile.Scope, at string, n algorithms.Needs) {
	if f := d.file; n.Losses != nil && f.Engine != nil && f.Engine.Server != nil {
		s.Failf(at, "engine.command serves a model but does not train it: give an engine that does, policy or tinker")
	}
	if n.Losses != nil && !s.Given("engine") {
		s.Failf(at, `there is no engine whose weights it could train: give one, such as "engine: {policy: {}}"`)
	}
	if p := d.file.Proxy; n.Calls && p != nil && p.Config.Capture == proxy.CaptureOff {
		s.Failf("proxy.capture.mode", "got off, but %s learns from the calls that are recorded", d.file.Algorithm.Name())
	}
	if p := d.file.Proxy; n.Sessions && (p == nil || p.Config.Sessions.IdleTimeout == 0) {
		s.Failf(at, `there are no sessions to try candidates on: give proxy.sessions, such as "proxy: {sessions: {idle_timeout: 15m}}"`)
	}
	if n.Prompts && !s.Given("prompts") {
		s.Failf(at, `there is nothing to tune: give prompts, such as "prompts: {system: system.txt}"`)
	}
	if n.Validation && s.Given("data") && !s.Given("data.val") && !s.Given("data.val_share") {
		s.Failf(at, "candidates are compared on validation tasks: give data.val, or data.val_share")
	}
	for _, m := range n.Models {
		if d.settled && m.BaseURL == "" && !d.serves(s, m.Name) {
			s.Failf(m.Key, "got the model %s without a base_url, and the proxy has no model of that name", m.Name)
		}
	}
}

// serves reports whether the run's proxy has a model of that name.
func (d *draft) serves(s *yamlfile.Scope, model string) bool {
	if s.Given("engine") || s.Given("proxy") && d.file.Proxy == nil { // the proxy's own mistakes come first
		return true
	}
	if d.file.Proxy == nil {
		return false
	}
	return slices.ContainsFunc(d.file.Proxy.Config.Models, func(m proxy.Model) bool { return m.Name == model })
}

func trackers(to *Trackers) yamlfile.Value {
	key := yamlfile.Key
	return yamlfile.Mapping(
		key("tensorboard", "A folder of TensorBoard event files; each run has a folder there, named after its output folder.", yamlfile.Path(&to.TensorBoard)),
		key("mlflow", "An MLflow tracking server.", yamlfile.Via(func(m *tracker.MLflowConfig) yamlfile.Value {
			return yamlfile.Mapping(
				key("url", "Its URL, such as http://127.0.0.1:5000.", yamlfile.URL(&m.URL)).Required(", the URL of the server"),
				key("token", "The bearer token that is sent.", yamlfile.Secret(&m.Token)),
				key("experiment", "The experiment, which is created if it does not exist.", yamlfile.Text(&m.Experiment)).Default("agl"),
				key("run_name", "The name of the run; by default the server makes one.", yamlfile.Text(&m.RunName)),
			)
		}, func(m tracker.MLflowConfig) { to.MLflow = &m })),
	)
}
