package plan

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
