package record

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
	JudgeClock          = "clock"           // this machine's clock was set
	JudgeOrder          = "order"           // the run did not follow the schedule of its plan
	JudgeWebhook        = "webhook"         // a write failed because the plan made a webhook unreachable
	JudgeTimeout        = "timeout"         // the workload timed out
	JudgeBaseline       = "baseline"        // the run ended differently from runs without faults
	JudgeStaleness      = "staleness"       // the plan paused an API server, but no controller was shown stale state
	JudgeDependent      = "dependent"       // a controller deleted an object of a living owner, and created it again
	JudgeDuplicate      = "duplicate"       // an owner had more objects at a time than it asks for
	JudgeFight          = "fight"           // a field changed back and forth
	JudgeRevert         = "revert"          // a controller set a spec back to what it was before
	JudgeLoop           = "loop"            // a controller writes or reconciles without end
	JudgeHot            = "hot"             // a controller changes one object again and again
	JudgeUnrest         = "unrest"          // a controller never comes to rest
	JudgeLease          = "lease"           // a controller wrote after it had lost its lease
	JudgeOrphan         = "orphan"          // an object whose owner is gone is still there
	JudgeFinalizer      = "finalizer"       // a controller does not remove its finalizer
	JudgeUpgrade        = "upgrade"         // an upgrade changes objects at rest
	JudgeWaste          = "waste"           // a controller creates objects for nothing
	JudgeErrors         = "errors"          // a controller logs an error without end
	JudgeComplaint      = "complaint"       // what a user has made ends with a status that says what is wrong
)

// traits are what all findings of a judge have in common.
type traits struct {
	harm  Harm // if the finding does not say it itself
	alike alike
}

// alike is what two findings about one subject must have in common to be the same.
type alike int

const (
	byTitle               alike = iota // the title up to the colon
	byTitleWithoutNumbers              // the title but for numbers
	byHarm                             // whether the object exists, is left, or differs in its fields
	bySubject                          // nothing more
)

// judges has the traits of each judge.
var judges = map[string]traits{
	JudgeWorkload:       {HarmFailed, byTitle},
	JudgeInvariant:      {HarmViolated, byTitle},
	JudgeCrash:          {HarmCrash, byTitleWithoutNumbers},
	JudgePanic:          {HarmCrash, byTitleWithoutNumbers},
	JudgeRun:            {HarmRemark, byTitle},
	JudgeAction:         {HarmRemark, byTitle},
	JudgeHold:           {HarmRemark, byTitle},
	JudgeInvariantError: {HarmRemark, byTitle},
	JudgeLeadership:     {HarmRemark, byTitle},
	JudgeHistory:        {HarmRemark, byTitle},
	JudgeHook:           {HarmRemark, byTitle},
	JudgeSession:        {HarmRemark, byTitle},
	JudgeEnvironment:    {HarmRemark, byTitle},
	JudgeClock:          {HarmRemark, byTitle},
	JudgeOrder:          {HarmRemark, byTitle},
	JudgeWebhook:        {HarmRemark, byTitle},
	JudgeTimeout:        {HarmFailed, byTitle},
	JudgeBaseline:       {HarmWrong, byHarm},
	JudgeStaleness:      {HarmRemark, byTitle},
	JudgeDependent:      {HarmReplaced, bySubject},
	JudgeDuplicate:      {HarmReplaced, bySubject},
	JudgeFight:          {HarmRestless, bySubject},
	JudgeRevert:         {HarmWrong, bySubject},
	JudgeLoop:           {HarmRestless, bySubject},
	JudgeHot:            {HarmRestless, bySubject},
	JudgeUnrest:         {HarmRestless, bySubject},
	JudgeLease:          {HarmWrong, bySubject},
	JudgeOrphan:         {HarmLeft, bySubject},
	JudgeFinalizer:      {HarmLeft, bySubject},
	JudgeUpgrade:        {HarmRemark, byTitle},
	JudgeWaste:          {HarmRemark, bySubject},
	JudgeErrors:         {HarmRemark, byTitle},
	JudgeComplaint:      {HarmRemark, byTitle},
}

// traitsOf returns the traits of a judge. A judge of a later version may be unknown.
func traitsOf(judge string) traits {
	if t, ok := judges[judge]; ok {
		return t
	}
	return traits{HarmRemark, byTitle}
}

// judgeNamed returns the present name of a judge. Records and tests may have a former one.
func judgeNamed(name string) string {
	if name == "reference" {
		return JudgeBaseline
	}
	return name
}
