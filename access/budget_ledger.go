package access

import (
	"context"
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
)

// usageKind is the kind of the documents that hold the usage of keys with limits.
const usageKind = "key-usage"

const (
	// leaseLife is how long a server may be silent before its reservations count as spent: it may have died after its
	// calls were answered.
	leaseLife = 2 * time.Minute
	// maxNeeds bounds the reservations of one [Charge].
	maxNeeds = 1000
	// maxHolders bounds the leases of one budget. Each charge writes all of them.
	maxHolders = 10_000

	maxCharges   = 200 // attempts to write a document that other servers write, too
	chargeLocks  = 64
	maxHolder    = 64 // bytes
	chargePauses = 5 * time.Millisecond
)

// Charge reports what a holder, such as a proxy, has used of the budget of a key, and asks for more. All amounts are
// totals, so a charge can be repeated.
type Charge struct {
	KeyID  string `json:"-"`
	Holder string `json:"holder"` // a random text that nobody else knows
	// Sequence rises with each charge of the holder: an older one that arrives late changes nothing. Known is the
	// sequence of the last charge that was answered, 0 for none.
	Sequence int64     `json:"sequence"`
	Known    int64     `json:"known"`
	Spent    Amounts   `json:"spent"`    // by the holder so far
	Reserved Amounts   `json:"reserved"` // for running requests
	Needs    []Amounts `json:"needs"`    // to be reserved, independently of each other
	// End ends the lease. A holder that continues takes a new name.
	End bool `json:"end,omitzero"`
}

func (c *Charge) validate() error {
	switch {
	case c.Holder == "" || len(c.Holder) > maxHolder:
		return agl.Errorf(agl.CodeInvalid, "holder: got %d bytes, must be 1 to %d", len(c.Holder), maxHolder)
	case c.Sequence <= c.Known || c.Known < 0:
		return agl.Errorf(agl.CodeInvalid, "sequence: got %d, must be above known, %d, which must not be negative", c.Sequence, c.Known)
	case len(c.Needs) > maxNeeds:
		return agl.Errorf(agl.CodeInvalid, "needs: got %d, must be at most %d", len(c.Needs), maxNeeds)
	case !c.Spent.valid() || !c.Reserved.valid():
		return agl.Errorf(agl.CodeInvalid, "spent and reserved: got %+v and %+v, must not be negative", c.Spent, c.Reserved)
	}
	for i := range c.Needs {
		if !c.Needs[i].valid() {
			return agl.Errorf(agl.CodeInvalid, "needs[%d]: got %+v, must not be negative", i, c.Needs[i])
		}
	}
	return nil
}

// Charged answers a [Charge].
type Charged struct {
	Granted []bool `json:"granted"` // for each of the needs
	AccountBudget
	// Project is the budget of the key's project; nil if the project has no budget, or is itself the account.
	Project *AccountBudget `json:"project,omitzero"`
	// Lost says that the holder was silent for too long, so its reservations are spent. It must take a new name and
	// start its totals at zero.
	Lost bool `json:"lost,omitzero"`
}

// newBudgetError returns the reason why a need was not granted.
func newBudgetError(keyID string, answer *Charged, need Amounts) error {
	budget := &answer.AccountBudget
	at := budget.lacking(need)
	if at < 0 && answer.Project != nil {
		keyID, budget = ProjectAccount, answer.Project
		at = budget.lacking(need)
	}
	if at < 0 {
		return agl.Errorf(agl.CodeInternal, "the store refused a reservation for which there is room")
	}
	limit, spent, reserved, want := budget.Limit.parts(), budget.Spent.parts(), budget.Reserved.parts(), need.parts()
	e := &BudgetError{KeyID: keyID, Unit: want[at].unit, Limit: *limit[at].value, Reserved: *reserved[at].value, Need: *want[at].value}
	e.Left = max(e.Limit-*spent[at].value-e.Reserved, 0)
	return e
}

// AccountBudget is the budget of a key or a project, over all holders.
type AccountBudget struct {
	Limit    Amounts `json:"limit"`
	Spent    Amounts `json:"spent"`
	Reserved Amounts `json:"reserved"`
}

// lacking returns the index of the first part of need that has no room, or -1.
func (b *AccountBudget) lacking(need Amounts) int {
	used := b.Spent
	used.add(b.Reserved)
	return lacking(b.Limit, used, need)
}

// Usage is what a key with limits has used and reserved.
type Usage struct {
	Spent    Amounts `json:"spent"`
	Reserved Amounts `json:"reserved"`
}

// ledger is the document with the usage of a key.
type ledger struct {
	Spent  Amounts          `json:"spent"` // by holders that have ended
	Leases map[string]lease `json:"leases,omitzero"`
}

// lease is the last report of a holder, and what it has been granted since.
type lease struct {
	Sequence int64         `json:"sequence"`
	Spent    Amounts       `json:"spent"`
	Reserved Amounts       `json:"reserved"`
	Until    agl.Timestamp `json:"until"`
}

// total returns what is spent and reserved over all holders.
func (l *ledger) total() Usage {
	u := Usage{Spent: l.Spent}
	for _, held := range l.Leases {
		u.Spent.add(held.Spent)
		u.Reserved.add(held.Reserved)
	}
	return u
}

// expire ends the leases of holders that have been silent for too long, but none before graceUntil: until then
// holders may have been unable to report.
func (l *ledger) expire(now, graceUntil time.Time) {
	for holder, held := range l.Leases {
		if held.Until.Time().Sub(now) > leaseLife { // the clock was set back since it was written
			held.Until = agl.TimestampOf(now.Add(leaseLife))
			l.Leases[holder] = held
		}
		if now.Before(held.Until.Time()) || now.Before(graceUntil) {
			continue
		}
		l.Spent.add(held.Spent)
		held.Reserved.Calls = 0
		l.Spent.add(held.Reserved)
		delete(l.Leases, holder)
	}
}

// book is the ledger of one account during a charge.
type book struct {
	account string
	limit   Amounts
	ledger
	version int64
	budget  AccountBudget
}

// charge applies a charge to the books of a key and of its project, one of which may be missing. A need is granted if
// all books have room for it.
func charge(books []*book, c *Charge, now, graceUntil time.Time) (answer Charged, err error) {
	for _, b := range books {
		b.expire(now, graceUntil)
	}
	held, known := books[0].Leases[c.Holder] // both books have the lease, unless one had no limits before
	answer = Charged{Granted: make([]bool, len(c.Needs))}
	switch {
	case known && c.Sequence <= held.Sequence:
		return Charged{}, agl.Errorf(agl.CodeConflict, "sequence: got %d, and %d has arrived before", c.Sequence, held.Sequence)
	case !known && c.Known > 0:
		answer.Lost = true
	case !known && len(books[0].Leases) >= maxHolders:
		return Charged{}, agl.Errorf(agl.CodeExhausted, "holder: this budget already has %d leases, the maximum", maxHolders)
	}
	for _, b := range books {
		if !answer.Lost {
			delete(b.Leases, c.Holder)
			if c.End {
				b.Spent.add(c.Spent)
			}
		}
		total := b.total()
		b.budget = AccountBudget{Limit: b.limit, Spent: total.Spent, Reserved: total.Reserved}
	}
	if !c.End && !answer.Lost {
		grant(books, c, answer.Granted, now)
	}
	answer.AccountBudget = books[0].budget
	if len(books) > 1 {
		answer.Project = &books[1].budget
	}
	return answer, nil
}

// grant gives the holder of a charge a lease in each book, with the needs that fit into all books.
func grant(books []*book, c *Charge, granted []bool, now time.Time) {
	held := lease{Sequence: c.Sequence, Spent: c.Spent, Reserved: c.Reserved, Until: agl.TimestampOf(now.Add(leaseLife))}
	for _, b := range books {
		b.budget.Spent.add(c.Spent)
		b.budget.Reserved.add(c.Reserved)
	}
	for i, need := range c.Needs {
		if slices.ContainsFunc(books, func(b *book) bool { return b.budget.lacking(need) >= 0 }) {
			continue
		}
		granted[i] = true
		held.Reserved.add(need)
		for _, b := range books {
			b.budget.Reserved.add(need)
		}
	}
	for _, b := range books {
		if b.Leases == nil {
			b.Leases = map[string]lease{}
		}
		b.Leases[c.Holder] = held
	}
}

// ledgers holds the usage of all keys.
type ledgers struct {
	documents agl.DocumentStore
	seed      maphash.Seed
	began     time.Time // with a monotonic reading
	// locks serialize the charges of one key within this process, so that they do not conflict.
	locks [chargeLocks]sync.Mutex
}

// now returns the time, counted from the start of the process, so that setting the system's clock ends no lease.
// Holders could not report before the start; graceUntil gives them time.
func (l *ledgers) now() (now, graceUntil time.Time) {
	return l.began.Add(time.Since(l.began)), l.began.Add(leaseLife)
}

// accountLimit is the limit of an account.
type accountLimit struct {
	account string
	limits  Limits
}

// errWritten says that another server has changed the document meanwhile.
var errWritten = errors.New("the document has changed")

// charge applies a charge to the ledgers of a key and of its project, in one conditional write.
func (l *ledgers) charge(ctx context.Context, limits []accountLimit, c *Charge) (Charged, error) {
	// Keys of one project write the same document, so they share a lock.
	lock := &l.locks[maphash.String(l.seed, limits[len(limits)-1].account)%chargeLocks]
	lock.Lock()
	defer lock.Unlock()
	for try := 1; ; try++ {
		answer, err := l.tryCharge(ctx, limits, c)
		if err == nil || !errors.Is(err, errWritten) {
			return answer, err
		}
		if try == maxCharges {
			return Charged{}, agl.Errorf(agl.CodeUnavailable, "the budget of %s is being written by too many servers at once: %w", c.KeyID, err)
		}
		if err := backoff.Sleep(ctx, rand.N(chargePauses)); err != nil {
			return Charged{}, err
		}
	}
}

// tryCharge makes one attempt at a charge. It returns errWritten if another server was faster.
func (l *ledgers) tryCharge(ctx context.Context, limits []accountLimit, c *Charge) (Charged, error) {
	books := make([]*book, len(limits))
	for i := range limits {
		b := &book{account: limits[i].account, limit: limits[i].limits.amounts()}
		var err error
		if b.ledger, b.version, err = l.read(ctx, b.account); err != nil {
			return Charged{}, err
		}
		books[i] = b
	}
	now, graceUntil := l.now()
	answer, err := charge(books, c, now, graceUntil)
	if err != nil {
		return Charged{}, err
	}
	writes := make([]agl.DocumentWrite, len(books))
	for i, b := range books {
		body, err := json.Marshal(&b.ledger)
		if err != nil {
			return Charged{}, err
		}
		writes[i] = agl.DocumentWrite{Kind: usageKind, ID: b.account, Body: body, IfVersion: agl.Some(b.version), Quiet: true}
	}
	_, err = l.documents.WriteDocuments(ctx, agl.WriteDocumentsParams{Writes: writes})
	if errors.Is(err, agl.ErrConflict) {
		return Charged{}, errWritten
	}
	return answer, err
}

// read returns the ledger of a key. Version 0 means that it does not exist yet.
func (l *ledgers) read(ctx context.Context, keyID string) (book ledger, version int64, err error) {
	book, version, err = agl.ReadDocument[ledger](ctx, l.documents, usageKind, keyID)
	if errors.Is(err, agl.ErrNotFound) {
		err = nil
	}
	return book, version, err
}

// usage returns the usage of all accounts, by account.
func (l *ledgers) usage(ctx context.Context) (map[string]Usage, error) {
	page, err := l.documents.QueryDocuments(ctx, agl.QueryDocumentsParams{Kind: usageKind})
	if err != nil {
		return nil, err
	}
	used := make(map[string]Usage, len(page.Items))
	for i := range page.Items {
		var book ledger
		if err := page.Items[i].Decode(&book); err != nil {
			return nil, err
		}
		book.expire(l.now())
		used[page.Items[i].ID] = book.total()
	}
	return used, nil
}
