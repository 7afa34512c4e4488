package sqlstore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/driver"
)

// Dialect is a dialect of SQL.
type Dialect int

// The dialects.
const (
	SQLite Dialect = iota
	Postgres
)

// Condition is a condition that a driver adds: SQL with a ? for each argument, in either dialect.
type Condition struct {
	SQL  string
	Args []any
}

// Query is the part of a statement after FROM.
type Query struct {
	Where    string // " WHERE …", or nothing
	OrderBy  string // " ORDER BY …"
	Limit    string // " LIMIT … OFFSET …", or nothing
	Args     []any  // of Where; lists are a JSON array in SQLite, a []string in PostgreSQL
	PageArgs []any  // of Limit, numbered after Args
	// Filtered says that there are conditions besides those in always.
	Filtered bool
}

// Page returns the query with its order and limit, and all arguments.
func (q *Query) Page() (sql string, args []any) {
	return q.Where + q.OrderBy + q.Limit, slices.Concat(q.Args, q.PageArgs)
}

// Count returns the conditions alone, to count everything that matches.
func (q *Query) Count() (sql string, args []any) { return q.Where, q.Args }

// Rollouts builds a query of rollouts, table alias r.
func (d Dialect) Rollouts(p agl.QueryRolloutsParams, always ...Condition) Query {
	b := builder{dialect: d}
	within(&b, p.StatusIn, "r.status")
	within(&b, p.RolloutIDIn, "r.rollout_id")
	b.contains("r.rollout_id", p.RolloutIDContains)
	within(&b, p.ModeIn, "r.mode")
	b.labels(p.Labels, p.Logic)
	if p.RewardMin.Valid {
		b.add("r.reward >= ?", p.RewardMin.V)
	}
	if p.RewardMax.Valid {
		b.add("r.reward <= ?", p.RewardMax.V)
	}
	if p.After != "" {
		always = append(always, after(p))
	}
	var order []string
	switch p.SortBy {
	case "reward":
		order = []string{"r.reward" + direction(p.Order) + " NULLS LAST"}
	case "rollout_id", "status":
		order = b.byText("r."+p.SortBy, p.Order)
	case "mode", "resources_id":
		order = b.byNullText("r."+p.SortBy, p.Order)
	case "start_time", "end_time":
		order = byTime("r."+p.SortBy, p.Order)
	}
	return b.build(always, p.Logic, append(order, "r.ordinal"), p.Paging)
}

// Attempts builds a query of attempts, table alias a. The driver adds the condition on p.RolloutID.
func (d Dialect) Attempts(p agl.QueryAttemptsParams, always ...Condition) Query {
	b := builder{dialect: d}
	var order []string
	switch p.SortBy {
	case "", "sequence_id":
		order = byNumber("a.sequence_id", p.Order)
	case "attempt_id", "status":
		order = b.byText("a."+p.SortBy, p.Order)
	case "worker_id":
		order = b.byNullText("a.worker_id", p.Order)
	case "start_time", "end_time", "last_heartbeat_time":
		order = byTime("a."+p.SortBy, p.Order)
	}
	return b.build(always, agl.FilterAnd, append(order, "a.ordinal"), p.Paging)
}

// Spans builds a query of spans, table alias s. The driver adds the conditions on p.RolloutID and p.AttemptID.
func (d Dialect) Spans(p agl.QuerySpansParams, always ...Condition) Query {
	b := builder{dialect: d}
	b.exactly("s.trace_id", p.TraceID)
	b.contains("s.trace_id", p.TraceIDContains)
	b.exactly("s.span_id", p.SpanID)
	b.contains("s.span_id", p.SpanIDContains)
	b.exactly("s.parent_id", p.ParentID)
	b.contains("s.parent_id", p.ParentIDContains)
	b.exactly("s.name", p.Name)
	b.contains("s.name", p.NameContains)
	var order []string
	switch p.SortBy {
	case "":
		order = append(byNumber("s.sequence_id", agl.Ascending), spanTies()...)
	case "sequence_id":
		order = append(byNumber("s.sequence_id", p.Order), spanTies()...)
	case "trace_id", "span_id", "name", "attempt_id":
		order = b.byText("s."+p.SortBy, p.Order)
	case "parent_id":
		order = b.byNullText("s.parent_id", p.Order)
	case "start_time", "end_time":
		order = byTime("s."+p.SortBy, p.Order)
	}
	return b.build(always, p.Logic, append(order, "s.ordinal"), p.Paging)
}

// spanTies returns the order of spans with the same sequence id, before the order of insertion.
func spanTies() []string {
	return append(byTime("s.start_time", agl.Ascending), byTime("s.end_time", agl.Ascending)...)
}

// Resources builds a query of resources, table alias u.
func (d Dialect) Resources(p agl.QueryResourcesParams, always ...Condition) Query {
	b := builder{dialect: d}
	b.exactly("u.resources_id", p.ResourcesID)
	b.contains("u.resources_id", p.ResourcesIDContains)
	var order []string
	switch p.SortBy {
	case "resources_id":
		order = b.byText("u.resources_id", p.Order)
	case "create_time", "update_time":
		order = byTime("u."+p.SortBy, p.Order)
	case "version":
		order = byNumber("u.version", p.Order)
	}
	return b.build(always, agl.FilterAnd, append(order, "u.ordinal"), p.Paging)
}

// Workers builds a query of workers, table alias w.
func (d Dialect) Workers(p agl.QueryWorkersParams, always ...Condition) Query {
	b := builder{dialect: d}
	within(&b, p.StatusIn, "w.status")
	b.contains("w.worker_id", p.WorkerIDContains)
	var order []string
	switch p.SortBy {
	case "worker_id", "status":
		order = b.byText("w."+p.SortBy, p.Order)
	case "current_rollout_id", "current_attempt_id":
		order = b.byNullText("w."+p.SortBy, p.Order)
	case "last_heartbeat_time", "last_dequeue_time", "last_busy_time", "last_idle_time":
		order = byTime("w."+p.SortBy, p.Order)
	}
	return b.build(always, p.Logic, append(order, "w.ordinal"), p.Paging)
}

// builder collects the conditions that the filter logic joins.
type builder struct {
	dialect    Dialect
	conditions []Condition
}

func (b *builder) add(sql string, arg any) {
	b.conditions = append(b.conditions, Condition{SQL: sql, Args: []any{arg}})
}

// exactly adds a condition unless the value is empty.
func (b *builder) exactly(column, value string) {
	if value != "" {
		b.add(column+" = ?", value)
	}
}

// contains adds a condition unless the value is empty. It does not use LIKE, which gives % and _ a meaning, and
// ignores case in SQLite.
func (b *builder) contains(column, value string) {
	if value == "" {
		return
	}
	if b.dialect == Postgres {
		b.add("strpos("+column+", ?) > 0", value)
	} else {
		b.add("instr("+column+", ?) > 0", value)
	}
}

// within adds a condition unless the list is nil; an empty one matches nothing.
// The list is one argument, so that its length changes no statement.
func within[S ~string](b *builder, list []S, column string) {
	if list == nil {
		return
	}
	if b.dialect == Postgres {
		values := make([]string, len(list))
		for i, v := range list {
			values[i] = string(v)
		}
		b.add(column+" = ANY(?)", values)
		return
	}
	array := rawjson.AppendArray(nil, list, rawjson.AppendString[S])
	b.add(column+" IN (SELECT value FROM json_each(?))", string(array))
}

// after returns the condition that a rollout comes after p.After in the order of the query.
func after(p agl.QueryRolloutsParams) Condition {
	const of = "(SELECT k.%s FROM rollouts AS k WHERE k.rollout_id = ?)"
	start, ordinal := fmt.Sprintf(of, "start_time"), fmt.Sprintf(of, "ordinal")
	if p.SortBy == "" {
		return Condition{"r.ordinal > " + ordinal, []any{p.After}}
	}
	later := ">"
	if p.Order == agl.Descending {
		later = "<"
	}
	// The first comparison finds the position in the index.
	return Condition{"r.start_time " + later + "= " + start + " AND (r.start_time " + later + " " + start + " OR r.ordinal > " + ordinal + ")", []any{p.After, p.After, p.After}}
}

// labels adds conditions on the columns of [driver.Labels]. PostgreSQL keeps them in the rollout's row; SQLite keeps
// them in a table of their own, labels, since it rewrites a whole row for every change of a status.
func (b *builder) labels(list []agl.Label, logic agl.FilterLogic) {
	prefix := "r."
	if b.dialect == SQLite {
		prefix = "l."
	}
	all := make([]Condition, len(list))
	for i, l := range list {
		switch {
		case l.Name == "run" || l.Name == "step":
			all[i] = Condition{prefix + l.Name + " = ?", []any{l.Value}}
		case b.dialect == Postgres:
			all[i] = Condition{"strpos(" + prefix + "labels, ?) > 0", []any{driver.LabelLine(l)}}
		default:
			all[i] = Condition{"instr(" + prefix + "labels, ?) > 0", []any{driver.LabelLine(l)}}
		}
	}
	if b.dialect == SQLite {
		if logic != agl.FilterOr && len(all) > 1 { // one search serves all of them
			joined := Condition{SQL: all[0].SQL, Args: all[0].Args}
			for _, c := range all[1:] {
				joined.SQL += " AND " + c.SQL
				joined.Args = append(joined.Args, c.Args...)
			}
			all = []Condition{joined}
		}
		for i := range all {
			all[i].SQL = "r.ordinal IN (SELECT l.rollout FROM labels AS l WHERE " + all[i].SQL + ")"
		}
	}
	b.conditions = append(b.conditions, all...)
}

// byText sorts by the bytes of a text that is never null.
func (b *builder) byText(column string, order agl.SortOrder) []string {
	if b.dialect == Postgres {
		column += ` COLLATE "C"`
	}
	return []string{column + direction(order)}
}

// byNullText sorts null as the empty text.
func (b *builder) byNullText(column string, order agl.SortOrder) []string {
	return b.byText("COALESCE("+column+", '')", order)
}

func byNumber(column string, order agl.SortOrder) []string {
	return []string{column + direction(order)}
}

// byTime sorts null as later than everything.
func byTime(column string, order agl.SortOrder) []string {
	nulls := " NULLS LAST"
	if order == agl.Descending {
		nulls = " NULLS FIRST"
	}
	return []string{column + direction(order) + nulls}
}

func direction(order agl.SortOrder) string {
	if order == agl.Descending {
		return " DESC"
	}
	return ""
}

func (b *builder) build(always []Condition, logic agl.FilterLogic, order []string, p agl.Paging) Query {
	q := Query{OrderBy: " ORDER BY " + strings.Join(order, ", "), Filtered: len(b.conditions) > 0}
	groups := make([]string, 0, len(always)+1)
	for _, c := range always {
		groups = append(groups, c.SQL)
		q.Args = append(q.Args, c.Args...)
	}
	if q.Filtered {
		joined := make([]string, len(b.conditions))
		for i, c := range b.conditions {
			joined[i] = c.SQL
			q.Args = append(q.Args, c.Args...)
		}
		if logic == agl.FilterOr {
			groups = append(groups, "("+strings.Join(joined, " OR ")+")")
		} else {
			groups = append(groups, joined...)
		}
	}
	if len(groups) > 0 {
		q.Where = " WHERE " + strings.Join(groups, " AND ")
	}
	switch {
	case p.Limit >= 0 && b.dialect == SQLite:
		// SQLite would prepare the statement anew for each value of a plain parameter here.
		q.Limit, q.PageArgs = " LIMIT ? + 0 OFFSET ?", []any{p.Limit, p.Offset}
	case p.Limit >= 0:
		q.Limit, q.PageArgs = " LIMIT ? OFFSET ?", []any{p.Limit, p.Offset}
	case p.Offset > 0 && b.dialect == Postgres:
		q.Limit, q.PageArgs = " OFFSET ?", []any{p.Offset}
	case p.Offset > 0:
		q.Limit, q.PageArgs = " LIMIT -1 OFFSET ?", []any{p.Offset}
	}
	if b.dialect == Postgres {
		q.Where = numbered(q.Where, 1)
		q.Limit = numbered(q.Limit, 1+len(q.Args))
	}
	return q
}

// numbered replaces each ? by $n, from first on. No statement has one inside of
// a literal.
func numbered(sql string, first int) string {
	var out strings.Builder
	for i := first; ; i++ {
		before, after, found := strings.Cut(sql, "?")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		out.WriteByte('$')
		out.WriteString(strconv.Itoa(i))
		sql = after
	}
}
