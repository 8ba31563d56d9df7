package plan

// The types of actions that freeze processes.
const (
	FreezeController ActionType = "freezeController"
	ThawController   ActionType = "thawController"
)

// Thawing has the fields of thawController.
type Thawing struct {
	Kill bool `yaml:"kill"` // what is frozen, instead of letting it go on
}

// A frozen process is stopped by a signal: unlike one that is paused, it does nothing at all, and it does not notice.
// The other processes of the controller go on.
var freezeController = ActionKind{
	Type: FreezeController, Target: TargetController,
	Summary: "Stop the process of the controller that satisfied the trigger (SIGSTOP).",
	Doc:     "stops one process of the controller (SIGSTOP), [see below](#freezing-a-process)",
	Explain: func(a *Action) string {
		return "stop the process of " + controllerName(a.Target) + " that was observed, or else its leader, with all " +
			"its threads until it is thawed; its other processes go on"
	},
	Effects: func(a *Action) []Effect { return []Effect{&Freeze{a.Target}} },
}

var thawController = ActionKind{
	Type: ThawController, Target: TargetController,
	Summary: "Let the controller's frozen processes go on.",
	Doc:     "lets the frozen processes go on, or kills them",
	Fields:  []string{"kill"},
	Explain: func(a *Action) string {
		if a.Kill {
			return "kill the frozen processes of " + controllerName(a.Target) + "; they are started again"
		}
		return "let the frozen processes of " + controllerName(a.Target) + " go on where they were stopped"
	},
	Effects: func(a *Action) []Effect { return []Effect{&Thaw{a.Target, a.Kill}} },
}
