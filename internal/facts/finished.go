package facts

import (
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/metadata"
)

// ended are the conditions by which objects of all kinds (Job, JobSet, MPIJob, Backup) say that their work is done.
var ended = []string{"Complete", "Completed", "Succeeded", "Finished"}

// Finished reports whether an object has done what it was created for, as pods and jobs of all kinds do. Some failed
// jobs show their end only by the time, as Tekton's runs, and others have no time, as Kubernetes' own Jobs. A failed
// object that is not a job has not finished: controllers try again.
func Finished(object map[string]any) bool {
	status, _ := object["status"].(map[string]any)
	phase := metadata.Text(status, "phase")
	if phase == "Succeeded" || phase == "Failed" || status["completionTime"] != nil {
		return true
	}
	job := strings.Contains(metadata.Text(object, "kind"), "Job")
	conditions, _ := status["conditions"].([]any)
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, _ := c.(map[string]any)
		typ := metadata.Text(m, "type")
		return m["status"] == "True" && (slices.Contains(ended, typ) || job && typ == "Failed")
	})
}
