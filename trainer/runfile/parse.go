package runfile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/proxy"
)

// Error is what is wrong in a file, in the order of its lines. It matches
// agl.ErrInvalid.
type Error = yamlfile.Error

// Mistake is one thing that is wrong in a file.
type Mistake = yamlfile.Mistake

// Part is a part of a run that another process plays, perhaps on another machine.
type Part string

// The parts.
const (
	PartAgent     Part = "agent"     // with its program and its folder
	PartAlgorithm Part = "algorithm" // with the files of tasks and prompts
)

// Read reads the file at path. What is wrong in it is an *Error with every
// mistake; a file that cannot be read is the os package's error. What the parts
// elsewhere need is not looked for.
func Read(path string, elsewhere ...Part) (*File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the run file: %w", err)
	}
	return Parse(path, data, filepath.Dir(path), elsewhere...)
}

// Parse reads a file whose relative paths start from dir; empty is the working
// directory. The name is for errors, which are *Error, and for the default of
// Output. The files and the program that it names must be there, but for those of
// the parts elsewhere.
func Parse(name string, data []byte, dir string, elsewhere ...Part) (*File, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find the folder of the run file: %w", err)
	}
	file := &File{}
	document := yamlfile.Document{
		Name: name, Data: data, Dir: dir, Empty: "it must at least have agent, data and algorithm",
		Elsewhere: slices.Contains(elsewhere, PartAlgorithm),
	}
	if err := document.Read(declare(&draft{file: file, dir: dir, noAgent: slices.Contains(elsewhere, PartAgent)})); err != nil {
		return nil, err
	}
	if file.Output == "" {
		base := filepath.Base(name)
		file.Output = filepath.Join(dir, "runs", strings.TrimSuffix(base, filepath.Ext(base)))
	}
	return file, nil
}

// Schema returns the JSON Schema of a run file.
func Schema() jsontext.Value {
	return yamlfile.Schema("agl train", "What `agl train FILE` runs. Relative paths start from the folder of the file.", declare(&draft{file: &File{}}))
}

// declare declares the whole file.
func declare(d *draft) yamlfile.Value {
	key, f := yamlfile.Key, d.file
	return yamlfile.Mapping(
		key("agent", "The program that does the tasks. It may be left out where runners elsewhere join the run (store.listen, store.url).", d.agent(&f.Agent)),
		key("data", "The tasks.", d.data(&f.Data)).Required(", the tasks to train with"),
		key("prompts", "Prompt templates, which agents find among their resources under these names.", prompts(&f.Prompts)),
		key("proxy", "The LLM proxy, which stands in front of the models and records their calls. With an engine there is one in any case.", d.proxy(&f.Proxy)),
		key("engine", "Trains the weights of a model and serves it.", engine(&f.Engine)),
		key("algorithm", "What learns.", d.algorithm(&f.Algorithm)).Required(", one of apo, baseline, grpo, sft"),
		key("store", "Where the run is kept.", d.store(&f.Store)),
		key("output", "The folder of results. It is runs/NAME beside the file NAME.yaml when it is not here.", yamlfile.Path(&f.Output)),
		key("seed", "Decides every draw of the run.", yamlfile.Integer(&f.Seed)).Default(0),
	).Check(d.across)
}

// draft is a file that is being read.
type draft struct {
	file    *File
	dir     string // of the file, absolute
	noAgent bool   // on this machine
}

// across looks for what no part of the file can know alone.
func (d *draft) across(s *yamlfile.Scope) {
	f := d.file
	if !s.Given("agent") && !s.Given("store.listen") && !s.Given("store.url") {
		s.Failf("agent", "missing, the program that does the tasks; without it runners elsewhere must be able to join: store.listen or store.url")
	}
	if !s.Given("data.seed") {
		f.Data.Seed = f.Seed
	}
	if s.Given("engine") && !s.Given("proxy") {
		f.Proxy = &Proxy{}
	}
	if s.Given("proxy") && !s.Given("proxy.models") && !s.Given("engine") {
		s.Failf("proxy", "there is no model: give models, or an engine that serves one")
	}
	switch {
	case s.Given("algorithm.grpo"):
		d.acrossWeights(s, "grpo", true)
	case s.Given("algorithm.sft"):
		d.acrossWeights(s, "sft", !s.Given("algorithm.sft.from"))
	case s.Given("algorithm.apo"):
		d.acrossAPO(s)
	}
	if s.Given("proxy.model") && d.file.Proxy != nil {
		d.acrossModel(s)
	}
}

// acrossModel looks at the name that agents are told to ask for.
func (d *draft) acrossModel(s *yamlfile.Scope) {
	p := d.file.Proxy
	there := slices.ContainsFunc(p.Config.Models, func(m proxy.Model) bool { return m.Name == p.Model })
	switch {
	case s.Given("engine") && there:
		s.Failf("proxy.model", "got %s, a name in models, but it is the name of the engine's model, must be another", p.Model)
	case !s.Given("engine") && !there && s.Given("proxy.models"):
		s.Failf("proxy.model", "got %s, but models has none of that name", p.Model)
	}
}

// acrossWeights looks at what an algorithm needs that trains weights, by the calls that
// are recorded or not.
func (d *draft) acrossWeights(s *yamlfile.Scope, name string, recorded bool) {
	if !s.Given("engine") {
		s.Failf("algorithm."+name, `there is no engine whose weights it could train: give one, such as "engine: {policy: {}}"`)
	}
	if p := d.file.Proxy; recorded && p != nil && p.Config.Capture == proxy.CaptureOff {
		s.Failf("proxy.capture.mode", "got off, but %s learns from the calls that are recorded", name)
	}
}

func (d *draft) acrossAPO(s *yamlfile.Scope) {
	if !s.Given("prompts") {
		s.Failf("algorithm.apo", `there is nothing to tune: give prompts, such as "prompts: {system: system.txt}"`)
	}
	if s.Given("data") && !s.Given("data.val") && !s.Given("data.val_share") {
		s.Failf("algorithm.apo", "candidates are compared on validation tasks: give data.val, or data.val_share")
	}
	if d.file.Algorithm.APO == nil {
		return
	}
	apo := d.file.Algorithm.APO
	for key, model := range map[string]string{"gradient_model": ownModel(&apo.Gradient), "edit_model": ownModel(apo.Edit)} {
		if model != "" && !d.serves(s, model) {
			s.Failf("algorithm.apo."+key, "got the model %s without a base_url, and the proxy has no model of that name", model)
		}
	}
}

// serves reports whether the run's proxy has a model of that name.
func (d *draft) serves(s *yamlfile.Scope, model string) bool {
	if s.Given("engine") || s.Given("proxy") && d.file.Proxy == nil { // or its mistakes come first
		return true
	}
	if d.file.Proxy == nil {
		return false
	}
	return slices.ContainsFunc(d.file.Proxy.Config.Models, func(m proxy.Model) bool { return m.Name == model })
}
