package plan

// The types of actions that kill and start API servers.
const (
	KillAPIServer  ActionType = "killAPIServer"
	StartAPIServer ActionType = "startAPIServer"
)

var killAPIServer = ActionKind{
	Type: KillAPIServer, Target: TargetAPIServer,
	Explain: func(a *Action) string { return "kill " + controllerName(a.Target) + "; it stays down" },
	Effects: func(a *Action) Effects { return Effects{Stops: a.Target} },
}

var startAPIServer = ActionKind{
	Type: StartAPIServer, Target: TargetAPIServer,
	Explain: func(a *Action) string { return "start " + controllerName(a.Target) },
	Effects: func(a *Action) Effects { return Effects{Starts: a.Target} },
}
