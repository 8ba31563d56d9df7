package plan

var pauseController = ActionKind{
	Type: PauseController,
	Effects: func(a *Action) Effects {
		return Effects{Pauses: &Pause{
			By: a.Target, At: a.PauseAt, Scope: a.PauseScope, AvoidOngoingRead: a.AvoidOngoingRead,
		}}
	},
}

var resumeController = ActionKind{
	Type: ResumeController,
	Effects: func(a *Action) Effects {
		return Effects{Resumes: &Pause{By: a.Target, At: a.PauseAt, Scope: a.PauseScope}}
	},
}

// An API server is paused before it takes an event in: its watch cache stays as it is.
var pauseAPIServer = ActionKind{
	Type: PauseAPIServer,
	Effects: func(a *Action) Effects {
		return Effects{Pauses: &Pause{By: a.Target, At: BeforeAPIServerRecv, Scope: a.PauseScope}}
	},
}

var resumeAPIServer = ActionKind{
	Type: ResumeAPIServer,
	Effects: func(a *Action) Effects {
		return Effects{Resumes: &Pause{By: a.Target, At: BeforeAPIServerRecv, Scope: a.PauseScope}}
	},
}
