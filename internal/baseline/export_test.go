package baseline

// Story and LearnStories are for tests that import packages that import this one.
var (
	Story        = story
	LearnStories = learn
)
