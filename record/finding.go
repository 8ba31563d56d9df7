package record

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Finding is a problem that a judge or the run itself reports.
type Finding struct {
	Severity Severity  `json:"severity"`
	Judge    string    `json:"judge"` // see the Judge constants
	Title    string    `json:"title"` // one line
	Detail   string    `json:"detail,omitempty"`
	Subject  string    `json:"subject,omitempty"` // controller, object key or step
	Time     time.Time `json:"time,omitzero"`
	// Cause is when the first change that it names happened, which may be long before Time; zero: it names none.
	Cause time.Time `json:"cause,omitzero"`
	// Harm is what it means for users; empty: what the findings of its judge mean, see Does.
	Harm Harm `json:"harm,omitempty"`
	// Owner is the key of the object that the subject belongs to in the end, such as a custom resource; empty: none.
	Owner string `json:"owner,omitempty"`
	// Field are the paths in the subject that it is about, with a space between them; empty: the object as a whole.
	Field string `json:"field,omitempty"`
	// Awaited is the key of the object that a failed step of the workload waits for or writes; empty: none.
	Awaited string `json:"awaited,omitempty"`
	// Origin is where the call that Call names comes from.
	Origin
	Call CallKind `json:"call,omitempty"`
	// Claims are what the title says of objects. They are compared with the history before the finding is reported, and
	// not written. The last ones may be empty.
	Claims Claims `json:"-"`
}

// UnmarshalJSON reads a finding. The judge's key was "oracle" before, and one judge had another name.
func (f *Finding) UnmarshalJSON(data []byte) error {
	type plain Finding // without this method
	former := struct {
		*plain
		Oracle string `json:"oracle"`
	}{plain: (*plain)(f)}
	if err := json.Unmarshal(data, &former); err != nil {
		return err
	}
	if f.Judge == "" {
		f.Judge = former.Oracle
	}
	f.Judge = judgeNamed(f.Judge)
	return nil
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

// IsBug reports whether the finding is about the controller, not about the run.
func (f Finding) IsBug() bool { return f.Severity == SeverityBug }

// Of reports whether the finding has that name: that of its judge, of what it is about, or of an invariant.
func (f Finding) Of(name string) bool {
	name = judgeNamed(name)
	return f.Judge == name || f.Subject == name || f.OfInvariant(name)
}

// OfInvariant reports whether the finding says that the invariant of that name does not hold.
func (f Finding) OfInvariant(name string) bool {
	return f.Judge == JudgeInvariant && strings.HasPrefix(f.Title, JudgeInvariant+" "+name+":")
}

// Same reports whether two findings are about the same thing: the judge, the type of object, the owner and the fields
// are the same. The names of what belongs to an owner may differ, and so may values. This is what is meant wherever a
// finding is said to come again: when it is confirmed, when a plan is made smaller, and when runs are compared.
//
// That a step of the workload lacked an object is the same as that the object is missing at the end: which of them a
// run shows depends on how far it came. So it is with what a step saw that should be gone, and what is left at the end.
func (f Finding) Same(g Finding) bool {
	if f.Judge == g.Judge && f.whose() == g.whose() && f.aspect() == g.aspect() && sharesField(f.Field, g.Field) {
		return true
	}
	x, y := f.atTheEnd(), g.atTheEnd()
	if x == f && y == g || x.Judge != JudgeBaseline || y.Judge != x.Judge {
		return false
	}
	// The owner of an object that a step lacks is unknown if it was never created, also without faults.
	return x.aspect() == y.aspect() && sharesField(x.Field, y.Field) &&
		(x.whose() == y.whose() || x.object() == y.object())
}

// atTheEnd returns the finding that a step of the workload lacked an object, or saw one that should be gone, as the
// comparison with runs without faults would have it. Other findings are returned as they are.
func (f Finding) atTheEnd() Finding {
	if f.Judge == JudgeWorkload && f.Awaited != "" && (f.Harm == HarmMissing || f.Harm == HarmLeft) {
		f.Judge, f.Subject = JudgeBaseline, f.Awaited
	}
	return f
}

// About is the key of the object that the finding is about; empty: it is about something else.
func (f Finding) About() string {
	switch {
	case f.Awaited != "":
		return f.Awaited
	case strings.Contains(f.Subject, "/"):
		return f.Subject
	}
	return ""
}

// object is the object that the finding is about, whosever it is. Generated names are alike.
func (f Finding) object() string { return ordinal.ReplaceAllString(f.Subject, "#") }

// whose is the type of the object that the finding is about, and its owner. Without an owner it is the object itself.
func (f Finding) whose() string {
	typ, rest, isKey := strings.Cut(f.Subject, "/")
	switch {
	case !isKey:
		return f.Subject
	case f.Owner != "":
		return typ + " of " + ordinal.ReplaceAllString(f.Owner, "#")
	}
	return typ + "/" + ordinal.ReplaceAllString(rest, "#")
}

// aspect is what of its subject a finding is about, apart from fields, names and values.
func (f Finding) aspect() string {
	title, _, _ := strings.Cut(f.Title, ":")
	switch traitsOf(f.Judge).alike {
	case byHarm:
		switch harm := f.Does(); {
		case harm == HarmLost, harm == HarmMissing, harm == HarmReplaced, harm == HarmRemark && f.Field == "":
			return "its existence" // that it is lost, missing or created again may be a matter of when
		case harm == HarmLeft:
			return "that it is left"
		}
		return "its fields"
	case byTitleWithoutNumbers:
		return number.ReplaceAllString(f.Title, "#")
	case bySubject:
		return ""
	}
	return title
}

// sharesField reports whether two lists of fields have a field in common, or are both empty.
func sharesField(a, b string) bool {
	if a == b {
		return true
	}
	others := strings.Fields(b)
	return slices.ContainsFunc(strings.Fields(a), func(field string) bool { return slices.Contains(others, field) })
}

var stepNumber = regexp.MustCompile(`^step \d+ ?`)

// SameStep is Same for runs of workloads of which one has fewer steps, so that the number of a step may differ.
func (f Finding) SameStep(g Finding) bool {
	if f.Same(g) {
		return true
	}
	return f.Judge == JudgeWorkload && g.Judge == f.Judge && f.step() == g.step()
}

// step is what the step that the finding is about is called and what it does.
func (f Finding) step() string {
	parts := strings.SplitN(stepNumber.ReplaceAllString(f.Title, ""), ": ", 3)
	return strings.Join(parts[:min(2, len(parts))], ": ")
}

var (
	number  = regexp.MustCompile(`\d+`)
	ordinal = regexp.MustCompile(`#\d+`) // of a generated name
)

// Effects are what the finding has in common with others that do the same harm: its own effect and, if a step of the
// workload lacked an object, that of an object which is missing at the end.
func (f Finding) Effects() []string {
	if end := f.atTheEnd(); end != f {
		return []string{f.Effect(), end.Effect()}
	}
	return []string{f.Effect()}
}

// Effect is what the finding has in common with those that do the same harm in other workloads: the type of object, the
// type of its owner, and whether the object is lost, is left, or differs in a field.
func (f Finding) Effect() string {
	typ, _, isKey := strings.Cut(f.Subject, "/")
	switch f.Judge {
	case JudgeInvariant:
		typ, isKey = "", false
	case JudgeWorkload, JudgeTimeout:
		return f.Judge + " " + f.step()
	}
	effect := f.Judge + " " + f.aspect() + " of " + typ
	if owner, _, owned := strings.Cut(f.Owner, "/"); owned && isKey {
		effect += " of " + owner
	}
	if field, _, _ := strings.Cut(f.Field, " "); field != "" {
		effect += " in " + field
	}
	return effect
}
