package access

import (
	"context"
)

var _ Charger = (*Keys)(nil)

// Charge applies a charge in one conditional write of the usage of the key and of its project, so that all servers of
// the database together stay within both limits. A charge that is older than another one of its holder is
// CodeConflict.
func (k *Keys) Charge(ctx context.Context, c Charge) (Charged, error) {
	if err := c.validate(); err != nil {
		return Charged{}, err
	}
	limits, err := k.limits(ctx, c.KeyID)
	if err != nil {
		return Charged{}, err
	}
	return k.ledgers.charge(ctx, limits, &c)
}

// limits returns the limits that a charge counts against: those of the key, and those of its project, if it has any.
// A charge of the project's own account counts against the project even if its limits were removed meanwhile.
func (k *Keys) limits(ctx context.Context, account string) (all []accountLimit, err error) {
	project, err := k.ProjectLimits(ctx)
	if err != nil {
		return nil, err
	}
	if account != ProjectAccount {
		stored, _, err := k.read(ctx, account)
		if err != nil {
			return nil, err
		}
		all = append(all, accountLimit{account, stored.Limits})
	}
	if account == ProjectAccount || project != (Limits{}) {
		all = append(all, accountLimit{ProjectAccount, project})
	}
	return all, nil
}

// ProjectLimits returns the limits that all callers share.
func (k *Keys) ProjectLimits(ctx context.Context) (Limits, error) { return k.project.Get(ctx) }

// Budget is a budget and its use.
type Budget struct {
	Limits Limits `json:"limits"`
	Usage
}

// ProjectBudget returns the budget of the project; null limits if it has none.
func (k *Keys) ProjectBudget(ctx context.Context) (Budget, error) {
	limits, err := k.ProjectLimits(ctx)
	if err != nil || limits == (Limits{}) {
		return Budget{}, err
	}
	book, _, err := k.ledgers.read(ctx, ProjectAccount)
	book.expire(k.ledgers.now())
	return Budget{limits, book.total()}, err
}
