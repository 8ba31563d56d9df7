package plan

// RestartAPIServer is the type of actions that restart an API server, as the upgrade of a control plane does.
const RestartAPIServer ActionType = "restartAPIServer"

func init() {
	RegisterKind(ActionKind{
		Type: RestartAPIServer, Target: TargetAPIServer,
		Summary: "Kill an API server and start it again.",
		Doc: "SIGKILL, then a new process; waits until it is ready. " +
			"Its watches end, as in an upgrade of the control plane",
		Fields:  []string{"cluster"},
		Explain: func(a *Action) string { return "kill " + controllerName(a.Target) + " and start it again" },
		Needs:   []Capability{KillAPIServers},
		Effects: func(a *Action) []Effect { return []Effect{&Stop{a.Target}, &Start{a.Target}} },
	})
}
