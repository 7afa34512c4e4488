package sqlstore

import (
	"errors"
	"iter"

	"github.com/agl-go/agl/store/driver"
)

// errStopped ends an export whose consumer wants no more records.
var errStopped = errors.New("the consumer of the export stopped")

// Export iterates over the records that read gives. Its error is the last value.
func Export(read func(give func(driver.Record) error) error) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		stopped := false
		err := read(func(r driver.Record) error {
			if stopped = stopped || !yield(r, nil); stopped {
				return errStopped
			}
			return nil
		})
		if err != nil && !stopped {
			yield(driver.Record{}, err)
		}
	}
}
