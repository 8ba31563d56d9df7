package plan

// Writes leave all processes as they are.
var (
	applyObject  = ActionKind{Type: ApplyObject}
	patchObject  = ActionKind{Type: PatchObject}
	deleteObject = ActionKind{Type: DeleteObject}
)
