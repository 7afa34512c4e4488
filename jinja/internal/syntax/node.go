package syntax

// Expr is an expression: a pointer to one of the types below.
type Expr any

type (
	// Const is a literal: nil, a bool, an int64, a *big.Int beyond int64, a float64 or a string.
	Const struct{ Value any }
	// Name is a variable.
	Name struct {
		Line int
		Name string
	}
	// List is a list or a tuple.
	List struct {
		Items []Expr
		Tuple bool
	}
	// Dict is a dict; Keys[i] belongs to Values[i].
	Dict struct {
		Line         int
		Keys, Values []Expr
	}
	// Cond is Then if Test else Else. Else may be nil.
	Cond struct{ Test, Then, Else Expr }
	// Unary is one of the operators + - not.
	Unary struct {
		Line int
		Op   string
		On   Expr
	}
	// Binary is an arithmetic operator, ~, "and" or "or".
	Binary struct {
		Line        int
		Op          string
		Left, Right Expr
	}
	// Compare is a chain of comparisons, such as a < b < c.
	Compare struct {
		Line  int
		First Expr
		Rest  []Comparison
	}
	// Comparison is one comparison of a chain.
	Comparison struct {
		Op string // == != < <= > >= in, or "not in"
		To Expr
	}
	// Attr is On.Name.
	Attr struct {
		Line int
		On   Expr
		Name string
	}
	// Item is On[Key]. The key may be a *Slice.
	Item struct {
		Line    int
		On, Key Expr
	}
	// Slice is Start:Stop:Step. Each part may be nil.
	Slice struct{ Start, Stop, Step Expr }
	// Call is Func(Args).
	Call struct {
		Line int
		Func Expr
		Args Args
	}
	// Filter is On | Name(Args). On is nil where a block's text is filtered.
	Filter struct {
		Line int
		On   Expr
		Name string
		Args Args
	}
	// Test is On is Name(Args).
	Test Filter
	// Args are the arguments of a call.
	Args struct {
		Positional     []Expr
		Named          []NamedArg
		Star, StarStar Expr
	}
	// NamedArg is Name=Value.
	NamedArg struct {
		Name  string
		Value Expr
	}
)

// Stmt is a statement: a pointer to one of the types below.
type Stmt any

type (
	// Data is text outside of tags.
	Data struct{ Text string }
	// Output prints a value.
	Output struct {
		Line  int
		Value Expr
	}
	// Scope runs its body with variables of its own.
	Scope struct{ Body []Stmt }
	// Jump is break or continue.
	Jump struct{ Break bool }
	// If runs Body or Else.
	If struct {
		Line       int
		Test       Expr
		Body, Else []Stmt
	}
	// For is a loop. Test is its own if and may be nil. Else runs if no iteration completes.
	For struct {
		Line       int
		Target     Target
		Over, Test Expr
		Recursive  bool
		Body, Else []Stmt
	}
	// Set assigns Value or, if that is nil, the filtered output of Body. Without a target it prints the output.
	Set struct {
		Line    int
		Target  Target
		Value   Expr
		Filters []*Filter
		Body    []Stmt
	}
	// With assigns Values[i] to Targets[i] for its body.
	With struct {
		Line    int
		Targets []Target
		Values  []Expr
		Body    []Stmt
	}
	// Macro defines a macro. The flags report which special variables its body uses; it accepts only those.
	Macro struct {
		Name   string
		Params []Param
		Body   []Stmt

		Caller, Kwargs, Varargs bool
	}
	// CallBlock is a call with Body as the variable caller.
	CallBlock struct {
		Line int
		Call *Call
		Body *Macro
	}
	// Param is a parameter of a macro. Default may be nil.
	Param struct {
		Name    string
		Default Expr
	}
	// Target is the left side of an assignment: a name, an attribute of a namespace, several targets, or nothing.
	Target struct {
		Name, Attr string
		List       []Target
	}
)
