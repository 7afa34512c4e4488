package runfile

import (
	"strings"

	"github.com/agl-go/agl/trainer/algorithms"
)

// Secrets returns the environment variables that hold secrets of the run's own parts: of its store
// and its proxy, of engines, backends and trackers. Agents need none of them. The key of a model
// that an algorithm asks is not among them: an agent without a proxy may use the same.
func (f *File) Secrets() (variables []string) {
	values := []string{f.Store.Token}
	if p := f.Proxy; p != nil {
		values = append(values, p.Config.Token, p.Config.KeySecret)
		for i := range p.Config.Models {
			values = append(values, p.Config.Models[i].APIKey)
		}
	}
	if f.Engine != nil && f.Engine.Tinker != nil {
		values = append(values, f.Engine.Tinker.Client.APIKey)
	}
	if f.Trackers.MLflow != nil {
		values = append(values, f.Trackers.MLflow.Token)
	}
	if a, ok := f.Algorithm.(*algorithms.SFT); ok && a.From != nil {
		values = append(values, a.From.Token)
	}
	for _, value := range values {
		if name, isEnv := strings.CutPrefix(value, "env:"); isEnv {
			variables = append(variables, name)
		}
	}
	return variables
}
