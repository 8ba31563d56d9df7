package plan

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/wording"
)

// The types of actions that make calls fail.
const (
	FailCall     ActionType = "failCall" // by default with status 500, a lost call with the client's timeout
	RestoreCalls ActionType = "restoreCalls"
)

// Failing has the fields of failCall and restoreCalls; restoreCalls has only Call and CallScope.
type Failing struct {
	Call           string      `yaml:"call"`           // an annotated call of the suite; empty: writes
	CallScope      Scope       `yaml:"callScope"`      // as PauseScope
	CallOperations []Operation `yaml:"callOperations"` // empty: all writes
	Answer         CallAnswer  `yaml:"answer" default:"refused"`
	Status         int         `yaml:"status"`                         // HTTP status; 0: see FailCall
	RetryAfter     int         `yaml:"retryAfterSeconds" range:"0 60"` // for the client of a refused call
	Times          int         `yaml:"times" range:"0 1000"`           // how many calls; 0: one
	UntilRestored  bool        `yaml:"untilRestored"`                  // all calls until restoreCalls
}

// Operation is a write to the API server.
type Operation string

// operations are the writes that can be made to fail.
var operations = []Operation{"create", "update", "patch", "apply", "delete", "deleteCollection"}

// CallAnswer is what becomes of a call to the API server that is made to fail.
type CallAnswer string

// The answers.
const (
	Lost    CallAnswer = "lost"    // the call takes effect, and its caller gets an error
	Refused CallAnswer = "refused" // the call does not reach the API server
)

var failCall = ActionKind{
	Type: FailCall, Target: TargetController,
	Summary: "Make writes of the controller in callScope fail, or an annotated call.",
	Doc:     "the controller's next writes fail, or calls of a function, [see below](#failing-calls)",
	Fields: []string{
		"cluster", "call", "callScope", "callOperations", "answer", "status", "retryAfterSeconds", "times",
		"untilRestored",
	},
	Check: func(c *ActionCheck) {
		a := c.Action
		checkCalls(c)
		if a.Call != "" {
			const only = "%s is for writes to the API server; an annotated call has none"
			for field, given := range map[string]bool{
				"callOperations": len(a.CallOperations) > 0, "status": a.Status != 0,
				"retryAfterSeconds": a.RetryAfter != 0,
			} {
				if given {
					c.Errorf(field, only, field)
				}
			}
		}
		for _, op := range a.CallOperations {
			if !slices.Contains(operations, op) {
				c.Errorf("callOperations", "unknown operation %q%s", op,
					wording.Suggest(string(op), stringsOf(operations)))
			}
		}
		if a.Answer != Lost && a.Answer != Refused {
			c.Errorf("answer", "unknown answer %q%s", a.Answer,
				wording.Suggest(string(a.Answer), []string{string(Lost), string(Refused)}))
		}
		if a.Status != 0 && (a.Status < 400 || a.Status > 599) {
			c.Errorf("status", "status is %d; the HTTP status of an error is 400 to 599", a.Status)
		}
		switch f := failureOf(a); {
		case a.RetryAfter == 0 || a.Call != "":
		case a.Answer == Lost:
			c.Errorf("retryAfterSeconds", "the client would repeat a call that has taken effect; "+
				"retryAfterSeconds is for answer: refused")
		case f.Status != http.StatusTooManyRequests && f.Status < 500:
			c.Errorf("retryAfterSeconds", "clients obey retryAfterSeconds with status 429 and 500 to 599 only")
		}
		if a.Times < 0 {
			c.Errorf("times", "times is %d; it must not be negative", a.Times)
		}
		if a.Times > 0 && a.UntilRestored {
			c.Errorf("untilRestored", "failCall has both times and untilRestored; it takes one")
		}
	},
	Explain: func(a *Action) string {
		f := failureOf(a)
		if f.Call != "" {
			return explainFailingCall(f)
		}
		which := "the next write of " + controllerName(a.Target)
		switch {
		case f.Times > 1:
			which = fmt.Sprintf("the next %d writes of %s", f.Times, controllerName(a.Target))
		case f.Times == 0:
			which = "all writes of " + controllerName(a.Target)
		}
		if len(f.Operations) > 0 {
			which += " (" + strings.Join(stringsOf(f.Operations), ", ") + ")"
		}
		which += toScope(f.Scope)
		what := "a timeout"
		if f.Status != 0 {
			what = strings.TrimSpace(fmt.Sprintf("the error %d %s", f.Status, http.StatusText(f.Status)))
		}
		s := fmt.Sprintf("answer %s with %s; the API server does not get them", which, what)
		if f.Answer == Lost {
			s = fmt.Sprintf("let %s take effect, and answer with %s", which, what)
		} else if f.Times == 1 {
			s = strings.Replace(s, "get them", "get it", 1)
		}
		if f.Times == 0 {
			s += ", until they are restored"
		}
		return s
	},
	Effects: func(a *Action) []Effect { return []Effect{failureOf(a)} },
}

// explainFailingCall says what becomes of the calls of an annotated function.
func explainFailingCall(f *CallFailure) string {
	which := fmt.Sprintf("the next call of %s by %s", f.Call, controllerName(f.By))
	switch {
	case f.Times > 1:
		which = fmt.Sprintf("the next %d calls of %s by %s", f.Times, f.Call, controllerName(f.By))
	case f.Times == 0:
		which = fmt.Sprintf("all calls of %s by %s", f.Call, controllerName(f.By))
	}
	if !f.Scope.Everything() {
		which += " for " + f.Scope.String()
	}
	s := "make " + which + " return an error at once"
	if f.Answer == Lost {
		s = "let " + which + " run, and return a timeout"
	}
	if f.Times == 0 {
		s += ", until they are restored"
	}
	return s
}

// toScope says which objects are written; empty: any.
func toScope(scope Scope) string {
	if scope.Everything() {
		return ""
	}
	return " to " + scope.String()
}

// failureOf returns how the action makes calls fail.
func failureOf(a *Action) *CallFailure {
	f := &CallFailure{
		By: a.Target, Call: a.Call, Scope: a.CallScope, Operations: a.CallOperations, Answer: a.Answer,
		Status: a.Status, Cluster: a.Cluster,
		RetryAfter: a.RetryAfter, Times: max(a.Times, 1),
	}
	if a.UntilRestored {
		f.Times = 0
	}
	if f.Status == 0 && f.Answer == Refused && f.Call == "" {
		f.Status = http.StatusInternalServerError
	}
	return f
}

var restoreCalls = ActionKind{
	Type: RestoreCalls, Target: TargetController,
	Summary: "End what failCall has begun.",
	Doc:     "ends what `failCall` has begun",
	Fields:  []string{"cluster", "call", "callScope"},
	Check:   checkCalls,
	Explain: func(a *Action) string {
		if a.Call != "" {
			return fmt.Sprintf("let calls of %s by %s return again what they return", a.Call, controllerName(a.Target))
		}
		which := "the writes of " + controllerName(a.Target) + toScope(a.CallScope)
		return "let " + which + " reach the API server again, and their answers the controller"
	},
	Effects: func(a *Action) []Effect {
		return []Effect{&Restore{By: a.Target, Call: a.Call, Scope: a.CallScope, Cluster: a.Cluster}}
	},
}

// checkCalls checks what failCall and restoreCalls have in common.
func checkCalls(c *ActionCheck) {
	c.checker.hooked(c.at.Field("actionTarget"), c.Action.Target, "so its calls cannot be made to fail")
	if c.Action.Call != "" {
		c.checker.annotated(c.Action.Call, c.at.Field("call"))
	}
}
