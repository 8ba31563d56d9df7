module cgoclock

go 1.26
