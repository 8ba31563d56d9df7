package record

import (
	"regexp"
	"strings"
	"time"
)

// Finding is a problem that a judge or the run itself reports.
type Finding struct {
	Severity Severity  `json:"severity"`
	Judge    string    `json:"oracle"` // see the Judge constants
	Title    string    `json:"title"`  // one line
	Detail   string    `json:"detail,omitempty"`
	Subject  string    `json:"subject,omitempty"` // controller, object key or step
	Time     time.Time `json:"time,omitzero"`
}

// Severity is what a finding means for the verdict.
type Severity string

// The severities.
const (
	// SeverityBug: the controller has a bug.
	SeverityBug Severity = "bug"
	// SeverityInconclusive: the run was not what its plan describes, or was not observed completely.
	SeverityInconclusive Severity = "inconclusive"
	// SeverityNote does not change the verdict.
	SeverityNote Severity = "note"
)

// Names of judges. Findings of the first four are usually bugs.
const (
	JudgeWorkload       = "workload"
	JudgeInvariant      = "invariant"
	JudgeCrash          = "crash"
	JudgePanic          = "panic"
	JudgeRun            = "run" // the run itself failed when there was already something to judge
	JudgeAction         = "action"
	JudgeHold           = "hold"
	JudgeInvariantError = "invariant error" // an invariant that could never be evaluated
	JudgeLeadership     = "leadership"      // a controller lost its leader election and exited
	JudgeHistory        = "history"         // the recorder missed states
	JudgeHook           = "hook"            // a hook failed inside a process
	JudgeSession        = "session"         // a process was not observed, or did not answer, for a time
	JudgeEnvironment    = "environment"     // a controller exited because it did not run in its pod
	JudgeWebhook        = "webhook"         // a write failed because the plan made a webhook unreachable
	JudgeTimeout        = "timeout"         // the workload timed out
	JudgeReference      = "reference"       // the run ended differently from runs without faults
	JudgeStaleness      = "staleness"       // the plan paused an API server, but no controller was shown stale state
	JudgeDependent      = "dependent"       // a controller deleted an object of a living owner, and created it again
	JudgeDuplicate      = "duplicate"       // an owner had more objects at a time than it asks for
	JudgeFight          = "fight"           // a field changed back and forth
	JudgeRevert         = "revert"          // a controller set a spec back to what it was before
	JudgeLoop           = "loop"            // a controller writes or reconciles without end
	JudgeUnrest         = "unrest"          // a controller never comes to rest
	JudgeLease          = "lease"           // a controller wrote after it had lost its lease
	JudgeOrphan         = "orphan"          // an object whose owner is gone is still there
	JudgeFinalizer      = "finalizer"       // an object waits for its finalizers without end
	JudgeErrors         = "errors"          // a controller logs an error without end
)

// IsBug reports whether the finding is about the controller, not about the run.
func (f Finding) IsBug() bool { return f.Severity == SeverityBug }

// Of reports whether the finding has that name: that of its judge, of what it is about, or of an invariant.
func (f Finding) Of(name string) bool {
	return f.Judge == name || f.Subject == name || f.OfInvariant(name)
}

// OfInvariant reports whether the finding says that the invariant of that name does not hold.
func (f Finding) OfInvariant(name string) bool {
	return f.Judge == JudgeInvariant && strings.HasPrefix(f.Title, JudgeInvariant+" "+name+":")
}

// Same reports whether the findings of two runs are about the same thing. The values in them may differ.
func (f Finding) Same(g Finding) bool {
	about := func(f Finding) string {
		title, _, _ := strings.Cut(f.Title, ":")
		return title
	}
	return f.Judge == g.Judge && f.Subject == g.Subject && about(f) == about(g)
}

var stepNumber = regexp.MustCompile(`^step \d+ ?`)

// SameStep is Same for runs of workloads of which one has fewer steps, so that the number of a step may differ.
func (f Finding) SameStep(g Finding) bool {
	if f.Same(g) {
		return true
	}
	about := func(f Finding) string { // what the step is called and what it does
		parts := strings.SplitN(stepNumber.ReplaceAllString(f.Title, ""), ": ", 3)
		return strings.Join(parts[:min(2, len(parts))], ": ")
	}
	return f.Judge == JudgeWorkload && g.Judge == f.Judge && about(f) == about(g)
}

var (
	number = regexp.MustCompile(`\d+`)
	more   = regexp.MustCompile(` \(and \d+ more\)$`)
)

// Kind returns what the finding has in common with those about other objects of the same type: the judge, the type, and
// what is said of it apart from names and the values of fields.
func (f Finding) Kind() string {
	typ, _, isKey := strings.Cut(f.Subject, "/")
	title := more.ReplaceAllString(f.Title, "")
	if isKey {
		title = strings.ReplaceAll(title, f.Subject, typ)
	}
	if f.Judge == JudgeReference {
		title, _, _ = strings.Cut(title, " is ") // what follows is the field's value
	}
	return f.Judge + " " + number.ReplaceAllString(title, "#")
}
