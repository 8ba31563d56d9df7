package plan

// The types of actions that kill and start API servers.
const (
	KillAPIServer  ActionType = "killAPIServer"
	StartAPIServer ActionType = "startAPIServer"
)

var killAPIServer = ActionKind{
	Type: KillAPIServer, Target: TargetAPIServer,
	Summary: "Kill an API server; it stays down.",
	Doc:     "SIGKILL; it stays down until `startAPIServer`",
	Fields:  []string{"cluster"},
	Explain: func(a *Action) string { return "kill " + controllerName(a.Target) + "; it stays down" },
	Needs:   []Capability{KillAPIServers},
	Effects: func(a *Action) []Effect { return []Effect{&Stop{a.Target}} },
}

var startAPIServer = ActionKind{
	Type: StartAPIServer, Target: TargetAPIServer,
	Summary: "Start a killed API server.",
	Doc:     "starts a killed API server and waits until it is ready",
	Fields:  []string{"cluster"},
	Explain: func(a *Action) string { return "start " + controllerName(a.Target) },
	Needs:   []Capability{KillAPIServers},
	Effects: func(a *Action) []Effect { return []Effect{&Start{a.Target}} },
}
