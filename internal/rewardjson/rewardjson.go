// Package rewardjson reads rewards that programs and people write as JSON, so that a mistake gets the same message everywhere.
// It must not know who has written them.
package rewardjson

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// Value reads a reward: a finite number, or true or false for 1 or 0. Anything else is an agl.ErrInvalid that names the field.
func Value(field string, raw jsontext.Value) (float64, error) {
	value, ok := rawjson.Number(raw)
	if !ok {
		return 0, agl.Errorf(agl.CodeInvalid, "%s: got %.100s, must be a finite number, true or false", field, raw)
	}
	return value, nil
}

// Dimensions reads the dimensions of a reward: an object whose values are as for [Value]. An empty object gives no rewards and no error.
func Dimensions(field string, raw jsontext.Value) (rewards []agl.Reward, err error) {
	if raw.Kind() != '{' {
		return nil, agl.Errorf(agl.CodeInvalid, "%s: got %.100s, must be an object of numbers, true or false, the primary one first", field, raw)
	}
	for name, one := range agl.Attributes(raw).All() {
		value, err := Value(field+"."+name, one)
		if err != nil {
			return nil, err
		}
		rewards = append(rewards, agl.Reward{Name: name, Value: value})
	}
	return rewards, nil
}
