module clock

go 1.26
