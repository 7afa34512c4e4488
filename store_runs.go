package agl

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// The kinds of documents that hold runs. All runs form the series allRuns, in the order of their start in
// microseconds. The metrics of a run form a series that is named after the run, in the order of the steps.
const (
	runKind     = "run"
	metricsKind = "run_metrics"
	allRuns     = "runs"
)

// runWriteTries bounds how often a change of a run is attempted when others change the run at the same time.
const runWriteTries = 20

// RunsOf returns the runs of a store: those of a client of the HTTP API, or the documents of an engine. It returns nil if the
// store keeps none.
func RunsOf(store Store) Runs {
	switch s := store.(type) {
	case Runs:
		return s
	case DocumentStore:
		return &storedRuns{s}
	default:
		return nil
	}
}

// storedRuns keeps runs as documents.
type storedRuns struct{ documents DocumentStore }

var _ Runs = (*storedRuns)(nil)

// NewRunID makes an id for [StartRunParams].
func NewRunID() string {
	const size = 6
	id := make([]byte, size)
	_, _ = rand.Read(id) // never fails
	return "ru-" + hex.EncodeToString(id)
}

// checkRunID keeps ids readable in URLs, and free of the slash before the step in the ids of metrics.
func checkRunID(id string) error {
	const most = 128
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-"
	if id == "" || len(id) > most || strings.Trim(id, allowed) != "" || strings.Trim(id, ".") == "" {
		return Errorf(CodeInvalid, "run_id: got %.200q, must be 1 to %d letters, digits and ._:-", id, most)
	}
	return nil
}

func checkRunText(field, text string) error {
	const most = 10_000
	if len(text) > most || !utf8.ValidString(text) {
		return Errorf(CodeInvalid, "%s: got %d bytes, must be at most %d bytes of UTF-8", field, len(text), most)
	}
	return nil
}

func checkRunMetadata(doc jsontext.Value) error {
	if doc != nil && (!doc.IsValid() || doc.Kind() != '{') {
		return Errorf(CodeInvalid, "metadata: got %.100s, must be an object", doc)
	}
	return nil
}

// read returns a run and the version of its document; ErrNotFound.
func (s *storedRuns) read(ctx context.Context, id string) (run Run, d Document, err error) {
	if err := checkRunID(id); err != nil {
		return run, d, err
	}
	d, err = s.documents.GetDocument(ctx, runKind, id)
	if errors.Is(err, ErrNotFound) {
		return run, d, Errorf(CodeNotFound, "run %s not found", id)
	}
	if err == nil {
		err = run.UnmarshalJSON(d.Body)
	}
	return run, d, err
}

func runWrite(run *Run, sequence, version int64) DocumentWrite {
	return DocumentWrite{Kind: runKind, ID: run.RunID, Parent: allRuns, Sequence: sequence, Body: run.AppendJSON(nil), IfVersion: Some(version)}
}

// change reads a run, edits it, and writes it together with the documents that edit returns. It starts over if
// another writer changed the run meanwhile.
func (s *storedRuns) change(ctx context.Context, id string, edit func(*Run) ([]DocumentWrite, error)) (run Run, err error) {
	for range runWriteTries {
		var d Document
		if run, d, err = s.read(ctx, id); err != nil {
			return Run{}, err
		}
		var further []DocumentWrite
		if further, err = edit(&run); err != nil {
			return Run{}, err
		}
		run.UpdateTime = TimestampOf(time.Now())
		_, err = s.documents.WriteDocuments(ctx, WriteDocumentsParams{Writes: append(further, runWrite(&run, d.Sequence, d.Version))})
		if !errors.Is(err, ErrConflict) {
			return run, err
		}
	}
	return Run{}, err
}

// StartRun implements [Runs].
func (s *storedRuns) StartRun(ctx context.Context, p StartRunParams) (Run, error) {
	p.RunID = cmp.Or(p.RunID, NewRunID())
	err := errors.Join(checkRunID(p.RunID), checkRunText("name", p.Name), checkRunText("algorithm", p.Algorithm), checkRunMetadata(p.Metadata))
	if err != nil {
		return Run{}, err
	}
	now := time.Now()
	at := TimestampOf(now)
	run := Run{RunID: p.RunID, Name: p.Name, Algorithm: p.Algorithm, Status: RunRunning, StartTime: at, UpdateTime: at, Metadata: p.Metadata.Clone()}
	_, err = s.documents.WriteDocuments(ctx, WriteDocumentsParams{Writes: []DocumentWrite{runWrite(&run, now.UnixMicro(), 0)}})
	if !errors.Is(err, ErrConflict) {
		return run, err
	}
	return s.change(ctx, p.RunID, func(run *Run) ([]DocumentWrite, error) {
		run.Status, run.Error, run.EndTime = RunRunning, "", Null[Timestamp]{}
		run.Name, run.Algorithm = cmp.Or(p.Name, run.Name), cmp.Or(p.Algorithm, run.Algorithm)
		if p.Metadata != nil {
			run.Metadata = p.Metadata.Clone()
		}
		return nil, nil
	})
}

// UpdateRun implements [Runs].
func (s *storedRuns) UpdateRun(ctx context.Context, p UpdateRunParams) (Run, error) {
	err := errors.Join(checkRunText("name", value(p.Name)), checkRunText("error", value(p.Error)), checkRunStatus(p.Status), checkRunMetadata(p.Metadata))
	if err != nil {
		return Run{}, err
	}
	return s.change(ctx, p.RunID, func(run *Run) ([]DocumentWrite, error) {
		if p.Status != nil {
			run.Status, run.EndTime = *p.Status, Null[Timestamp]{}
			if run.Status != RunRunning {
				run.EndTime = Some(TimestampOf(time.Now()))
			}
		}
		run.Error, run.Name = *cmp.Or(p.Error, &run.Error), *cmp.Or(p.Name, &run.Name)
		if p.Metadata != nil {
			run.Metadata = p.Metadata.Clone()
		}
		return nil, nil
	})
}

// value returns what p points to, or the zero value.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func checkRunStatus(status *RunStatus) error {
	if status == nil || slices.Contains(RunStatuses(), *status) {
		return nil
	}
	return Errorf(CodeInvalid, "status: got %.100q, must be running, finished, interrupted or failed", *status)
}

// GetRun implements [Runs].
func (s *storedRuns) GetRun(ctx context.Context, runID string) (Run, error) {
	run, _, err := s.read(ctx, runID)
	return run, err
}

// QueryRuns implements [Runs].
func (s *storedRuns) QueryRuns(ctx context.Context, p QueryRunsParams) (Page[Run], error) {
	found, err := s.documents.QueryDocuments(ctx, QueryDocumentsParams{Kind: runKind, Parent: Some(allRuns), Limit: p.Limit, Offset: p.Offset, Descending: true})
	return pageOf(found, err, func(d *Document, run *Run) error { return run.UnmarshalJSON(d.Body) })
}

// pageOf decodes the documents of a page.
func pageOf[T any](found Page[Document], err error, decode func(*Document, *T) error) (Page[T], error) {
	page := Page[T]{Items: make([]T, len(found.Items)), Limit: found.Limit, Offset: found.Offset, Total: found.Total}
	for i := 0; i < len(found.Items) && err == nil; i++ {
		err = decode(&found.Items[i], &page.Items[i])
	}
	if err != nil {
		return Page[T]{}, err
	}
	return page, nil
}

// DeleteRun implements [Runs]. It looks again if the run has changed meanwhile, so that no metrics of it are left.
func (s *storedRuns) DeleteRun(ctx context.Context, runID string) error {
	for {
		_, run, err := s.read(ctx, runID)
		if err != nil {
			return err
		}
		found, err := s.documents.QueryDocuments(ctx, QueryDocumentsParams{Kind: metricsKind, Parent: Some(runID), Limit: MaxDocumentWrites - 1})
		if err != nil {
			return err
		}
		var writes []DocumentWrite
		for i := range found.Items {
			writes = append(writes, DocumentWrite{Kind: metricsKind, ID: found.Items[i].ID, Delete: true, Quiet: true})
		}
		last := found.Total <= len(found.Items)
		if last {
			writes = append(writes, DocumentWrite{Kind: runKind, ID: runID, Delete: true, IfVersion: Some(run.Version)})
		}
		switch _, err := s.documents.WriteDocuments(ctx, WriteDocumentsParams{Writes: writes}); {
		case errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound): // metrics were added, or somebody else deletes it
		case err != nil || last:
			return err
		}
	}
}

// check returns an error for the first value that is out of range.
func (p *AddRunMetricsParams) check() error {
	if len(p.Metrics) == 0 || len(p.Metrics) > MaxRunSteps {
		return Errorf(CodeInvalid, "metrics: got %d steps, must be 1 to %d", len(p.Metrics), MaxRunSteps)
	}
	seen := map[int]bool{}
	for _, m := range p.Metrics {
		switch {
		case m.Step < 0:
			return Errorf(CodeInvalid, "step: got %d, must be at least 0", m.Step)
		case seen[m.Step]:
			return Errorf(CodeInvalid, "step: got %d twice, must differ in each of the metrics", m.Step)
		}
		seen[m.Step] = true
		for name, v := range m.Values {
			switch {
			case name == "" || len(name) > MaxRunMetricBytes || !utf8.ValidString(name):
				return Errorf(CodeInvalid, "values: the name %.300q must have 1 to %d bytes of UTF-8", name, MaxRunMetricBytes)
			case math.IsNaN(v) || math.IsInf(v, 0):
				return Errorf(CodeInvalid, "values: %s: got %v, must be a finite number", name, v)
			}
		}
	}
	return nil
}

// AddRunMetrics implements [Runs]. The metrics are written together with the run, so that two calls that write the
// same step at once conflict on the run's version.
func (s *storedRuns) AddRunMetrics(ctx context.Context, p AddRunMetricsParams) (Run, error) {
	if err := p.check(); err != nil {
		return Run{}, err
	}
	return s.change(ctx, p.RunID, func(run *Run) ([]DocumentWrite, error) {
		at := TimestampOf(time.Now())
		latest := maps.Clone(run.Metrics)
		if latest == nil {
			latest = map[string]float64{}
		}
		writes := make([]DocumentWrite, 0, len(p.Metrics)+1)
		for _, given := range p.Metrics {
			id := p.RunID + "/" + strconv.Itoa(given.Step)
			merged := RunMetrics{Step: given.Step, Time: at, Values: map[string]float64{}}
			d, err := s.documents.GetDocument(ctx, metricsKind, id)
			switch {
			case err == nil:
				var earlier RunMetrics
				if err := earlier.UnmarshalJSON(d.Body); err != nil {
					return nil, err
				}
				maps.Copy(merged.Values, earlier.Values)
			case !errors.Is(err, ErrNotFound):
				return nil, err
			}
			maps.Copy(merged.Values, given.Values)
			writes = append(writes, DocumentWrite{Kind: metricsKind, ID: id, Parent: p.RunID, Sequence: int64(given.Step), Body: merged.AppendJSON(nil), Quiet: true})
			maps.Copy(latest, given.Values)
			run.Step = Some(max(run.Step.V, given.Step))
		}
		if len(latest) > MaxRunMetricNames {
			return nil, Errorf(CodeInvalid, "values: the run would have %d names, must be at most %d", len(latest), MaxRunMetricNames)
		}
		run.Metrics = latest
		return writes, nil
	})
}

// QueryRunMetrics implements [Runs].
func (s *storedRuns) QueryRunMetrics(ctx context.Context, p QueryRunMetricsParams) (Page[RunMetrics], error) {
	if _, _, err := s.read(ctx, p.RunID); err != nil {
		return Page[RunMetrics]{}, err
	}
	bound := func(step Null[int]) Null[int64] { return Null[int64]{V: int64(step.V), Valid: step.Valid} }
	found, err := s.documents.QueryDocuments(ctx, QueryDocumentsParams{
		Kind: metricsKind, Parent: Some(p.RunID), From: bound(p.From), To: bound(p.To), Limit: p.Limit, Offset: p.Offset,
	})
	return pageOf(found, err, func(d *Document, m *RunMetrics) error { return m.UnmarshalJSON(d.Body) })
}
