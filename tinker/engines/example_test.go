package engines_test

import (
	"fmt"

	"github.com/agl-go/agl/tinker/engines"
)

// What to expect of an engine, known or not.
func ExampleFind() {
	known, err := engines.Find(engines.SkyRLJAX)
	if err != nil {
		fmt.Println(err)
		return
	}
	unknown := engines.Assumed()
	fmt.Println(known.Title, known.Losses, known.Normalization, known.SumsLosses())
	fmt.Println("an unknown engine", unknown.Losses, unknown.SumsLosses())
	// Output:
	// SkyRL, JAX backend [cross_entropy importance_sampling ppo cispo] datum_mean true
	// an unknown engine [cross_entropy importance_sampling ppo] false
}
