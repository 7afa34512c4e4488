package policy

import (
	"slices"
	"sync"

	"github.com/agl-go/agl/tinker"
)

// savedWeights are the checkpoints and snapshots of a service, in its archive and in memory.
type savedWeights struct {
	lay           *layout
	files         archive
	saveSnapshots bool // in the archive

	mu        sync.Mutex
	snapshots map[tinker.Path]*weights // in memory only
	opened    []openedWeights          // from the archive, the latest last
}

// inArchive reports whether the archive has weights of a kind.
func (s *savedWeights) inArchive(kind tinker.WeightsKind) bool {
	return kind == tinker.KindCheckpoint || s.saveSnapshots
}

// open returns saved weights.
func (s *savedWeights) open(path tinker.Path) (*weights, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.snapshots[path]; w != nil {
		return w, nil
	}
	if !s.inArchive(path.Kind) {
		return nil, unknown(path)
	}
	if i := slices.IndexFunc(s.opened, func(o openedWeights) bool { return o.path == path }); i >= 0 {
		o := s.opened[i]
		s.opened = append(slices.Delete(s.opened, i, i+1), o)
		return o.w, nil
	}
	c, err := s.load(path)
	if err != nil {
		return nil, err
	}
	w := newWeights(s.lay, c.flat)
	s.opened = append(s.opened, openedWeights{path, w})
	s.opened = slices.Delete(s.opened, 0, max(len(s.opened)-keepOpened, 0))
	return w, nil
}

// remove deletes saved weights.
func (s *savedWeights) remove(path tinker.Path) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.snapshots[path] != nil {
		delete(s.snapshots, path)
		return nil
	}
	if !s.inArchive(path.Kind) {
		return unknown(path)
	}
	s.forget(path)
	return s.files.remove(path)
}

// save stores weights in the archive. Later calls of open return them.
func (s *savedWeights) save(path tinker.Path, data []byte, replace bool) (tinker.Path, error) {
	path, err := s.files.put(path, data, replace)
	if replace {
		// Also after an error: the file may have changed before it.
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget(path)
	}
	return path, err
}

func (s *savedWeights) load(path tinker.Path) (checkpoint, error) {
	data, err := s.files.get(path)
	if err != nil {
		return checkpoint{}, err
	}
	return decodeCheckpoint(path.String(), data, s.lay.shape)
}

// publish keeps a snapshot, in the archive or in memory. Only the calling model uses the path.
func (s *savedWeights) publish(path tinker.Path, t *trainer, p tinker.SaveWeightsParams) (tinker.Path, error) {
	s.mu.Lock()
	held := s.snapshots[path] != nil
	s.mu.Unlock()
	if held && !p.Overwrite {
		return path, taken(path)
	}
	if s.saveSnapshots && !p.Transient {
		return s.save(path, encodeWeights(t.w.shape, t.w.flat), p.Overwrite)
	}
	w := newWeights(s.lay, slices.Clone(t.w.flat))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshots[path] = w
	return path, nil
}

// keepOpened is how many opened weights stay in memory.
const keepOpened = 8

// openedWeights are weights of the archive, which never change.
type openedWeights struct {
	path tinker.Path
	w    *weights
}

// forget drops weights that were opened. The lock is held.
func (s *savedWeights) forget(path tinker.Path) {
	s.opened = slices.DeleteFunc(s.opened, func(o openedWeights) bool { return o.path == path })
}
