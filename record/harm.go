package record

import "slices"

// Harm is what a finding means for those who use the controller.
type Harm string

// The harms, the worst first.
const (
	// HarmLost: an object that holds data was deleted although its owner lived, or is gone for good.
	HarmLost Harm = "data lost"
	// HarmViolated: something that the suite demands does not hold.
	HarmViolated Harm = "invariant violated"
	// HarmMissing: an object that should exist does not.
	HarmMissing Harm = "missing"
	// HarmLeft: an object that should be gone is there.
	HarmLeft Harm = "left behind"
	// HarmCrash: a controller panicked, or exited on its own.
	HarmCrash Harm = "crash"
	// HarmFailed: a step of the workload failed.
	HarmFailed Harm = "workload failed"
	// HarmReplaced: an object was created more or less often than it should be, or there were too many at a time.
	HarmReplaced Harm = "replaced"
	// HarmWrong: an object asks for, or holds, something else than it should.
	HarmWrong Harm = "wrong content"
	// HarmRestless: a controller works without end.
	HarmRestless Harm = "restless"
	// HarmStatus: a status does not tell the truth.
	HarmStatus Harm = "wrong status"
	// HarmRemark: only messages, dates or counts differ, or it is only worth knowing.
	HarmRemark Harm = "remark"
)

var harms = []Harm{
	HarmLost, HarmViolated, HarmMissing, HarmLeft, HarmCrash, HarmFailed, HarmReplaced, HarmWrong, HarmRestless,
	HarmStatus, HarmRemark,
}

// Rank orders harms: the worst has the least. A harm that is not known comes last.
func (h Harm) Rank() int {
	if i := slices.Index(harms, h); i >= 0 {
		return i
	}
	return len(harms)
}

// Strong reports whether a harm counts however rarely it comes: it would be unacceptable once in a hundred times.
func (h Harm) Strong() bool {
	switch h {
	case HarmLost, HarmViolated, HarmMissing, HarmLeft, HarmCrash:
		return true
	}
	return false
}

// Does is the harm that the finding does: what it says itself, or else what those of its judge do.
func (f Finding) Does() Harm {
	if f.Harm != "" {
		return f.Harm
	}
	return traitsOf(f.Judge).harm
}

// ByHarm orders findings: bugs first, then inconclusive ones, then notes; of each, the greatest harm first.
func ByHarm(f, g Finding) int {
	rank := map[Severity]int{SeverityBug: 0, SeverityInconclusive: 1, SeverityNote: 2}
	if by := rank[f.Severity] - rank[g.Severity]; by != 0 {
		return by
	}
	return f.Does().Rank() - g.Does().Rank()
}
