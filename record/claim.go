package record

import "slices"

// Claims are those of a title. An array, so that findings can be compared.
type Claims [4]Claim

// Say adds what a title says of an object, unless it says so already.
func (all *Claims) Say(object string, says Statement) { all.add(Claim{Object: object, Says: says}) }

// Times adds how often a title says that an object was created.
func (all *Claims) Times(object string, n int) {
	all.add(Claim{Object: object, Says: ClaimTimes, Times: n})
}

func (all *Claims) add(c Claim) {
	if slices.Contains(all[:], c) {
		return
	}
	if i := slices.Index(all[:], Claim{}); i >= 0 {
		all[i] = c
	}
}

// Claim is what the title of a finding says of an object. The history of the run must bear it out.
type Claim struct {
	Object string // its key among the changes of the run; of ClaimAbsent a resource key, with "*" for any
	Says   Statement
	Times  int // of ClaimTimes
}

// Statement is what can be said of an object.
type Statement string

// The statements.
const (
	ClaimNever    Statement = "there was no such object at any time"
	ClaimThere    Statement = "it is there in the end"
	ClaimGone     Statement = "it is not there in the end"
	ClaimMarked   Statement = "it is there in the end, and marked for deletion"
	ClaimUnmarked Statement = "it is there in the end, and not marked for deletion"
	ClaimDeleted  Statement = "it was deleted, or marked for deletion"
	ClaimAgain    Statement = "it was created again after it had been deleted"
	// ClaimTimes: there were that many objects of that key, one after the other.
	ClaimTimes Statement = "it was created that often"
	// ClaimAbsent: there was no such object while a step waited for it.
	ClaimAbsent Statement = "it did not come"
)
