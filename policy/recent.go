package policy

import "github.com/agl-go/agl/tinker"

// keepOpened is the number of weights from files that stay in memory for those who open them again.
const keepOpened = 8

// recent holds the weights of files that were opened last, the oldest first. They never change, so that what was
// opened twice is the same.
type recent []struct {
	path tinker.Path
	w    *weights
}

func (r *recent) get(path tinker.Path) *weights {
	for i, e := range *r {
		if e.path == path {
			*r = append(append((*r)[:i:i], (*r)[i+1:]...), e)
			return e.w
		}
	}
	return nil
}

func (r *recent) put(path tinker.Path, w *weights) {
	*r = append(*r, recent{{path, w}}...)
	if n := len(*r) - keepOpened; n > 0 {
		*r = append(recent(nil), (*r)[n:]...)
	}
}

func (r *recent) remove(path tinker.Path) {
	for i, e := range *r {
		if e.path == path {
			*r = append((*r)[:i:i], (*r)[i+1:]...)
			return
		}
	}
}
