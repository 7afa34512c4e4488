package job

import (
	"errors"
)

// conclude writes down what the run came to, however it ended.
func (r *run) conclude(failure error) (*Result, error) {
	r.folder.spend(r.usage())
	r.folder.end(failure)
	result := &Result{Record: r.folder.record, Output: r.folder.path, Report: r.folder.file(reportFile)}
	if r.curve != nil {
		result.Curve = r.curve.String()
	}
	if l := r.learner; l != nil {
		switch {
		case l.grpo != nil:
			s := l.grpo.Summary()
			result.GRPO = &s
		case l.sft != nil:
			s := l.sft.Summary()
			result.SFT = &s
		case l.apo != nil:
			found := l.apo.Report()
			result.APO = &found
		case l.baseline != nil:
			seen := l.baseline.Report()
			result.Baseline = &seen
		}
	}
	if r.guard != nil && failure == nil {
		result.Warning = r.guard.warning()
		r.notes.first(result.Warning)
	}
	var err error
	if result.Baseline == nil { // which looks for nothing better
		err = r.writeBest(result)
	}
	err = errors.Join(err, r.writeReport(result))
	return result, errors.Join(err, r.folder.save())
}
