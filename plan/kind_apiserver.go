package plan

var killAPIServer = ActionKind{
	Type:    KillAPIServer,
	Effects: func(a *Action) Effects { return Effects{Stops: a.Target} },
}

var startAPIServer = ActionKind{
	Type:    StartAPIServer,
	Effects: func(a *Action) Effects { return Effects{Starts: a.Target} },
}
