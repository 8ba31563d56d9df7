package plan

var restartController = ActionKind{
	Type:    RestartController,
	Effects: func(a *Action) Effects { return Effects{Stops: a.Target, Starts: a.Target} },
}

var killController = ActionKind{
	Type:    KillController,
	Effects: func(a *Action) Effects { return Effects{Stops: a.Target} },
}

var startController = ActionKind{
	Type:    StartController,
	Effects: func(a *Action) Effects { return Effects{Starts: a.Target} },
}

var reconnectController = ActionKind{
	Type: ReconnectController,
	Effects: func(a *Action) Effects {
		e := Effects{Moves: &Move{Controller: a.Target, APIServer: a.ReconnectAPIServer, By: a.ReconnectBy}}
		if a.ReconnectBy != ReconnectCut {
			e.Stops, e.Starts = a.Target, a.Target
		}
		return e
	},
}
