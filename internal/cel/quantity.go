package cel

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
)

// quantities are the functions of Kubernetes' library of quantities, with its names and meanings
// (https://pkg.go.dev/k8s.io/apiserver/pkg/cel/library#Quantity). They are written here again because that package
// belongs to the API server's module.
func quantities() cel.EnvOption {
	one := []*cel.Type{quantityType}
	two := []*cel.Type{quantityType, quantityType}
	sign := cel.UnaryBinding(of(func(q resource.Quantity) ref.Val { return types.Int(q.Sign()) }))
	withInt := []*cel.Type{quantityType, cel.IntType}
	add := func(q, by resource.Quantity) resource.Quantity { q.Add(by); return q }
	sub := func(q, by resource.Quantity) resource.Quantity { q.Sub(by); return q }
	options := []cel.EnvOption{
		cel.Function("quantity", cel.Overload("string_to_quantity", []*cel.Type{cel.StringType}, quantityType,
			cel.UnaryBinding(func(v ref.Val) ref.Val {
				text, _ := v.Value().(string)
				q, err := parseQuantity(text)
				if err != nil {
					return types.WrapErr(err)
				}
				return quantity{q}
			}))),
		cel.Function("isQuantity", cel.Overload("is_quantity_string", []*cel.Type{cel.StringType}, cel.BoolType,
			cel.UnaryBinding(func(v ref.Val) ref.Val {
				text, _ := v.Value().(string)
				_, err := parseQuantity(text)
				return types.Bool(err == nil)
			}))),
		// Kubernetes documents a method and declares a function.
		cel.Function("sign", cel.Overload("quantity_sign", one, cel.IntType, sign),
			cel.MemberOverload("quantity_sign_method", one, cel.IntType, sign)),
		cel.Function("isInteger", cel.MemberOverload("quantity_is_integer", one, cel.BoolType,
			cel.UnaryBinding(of(func(q resource.Quantity) ref.Val {
				_, ok := q.AsInt64()
				return types.Bool(ok)
			})))),
		cel.Function("asInteger", cel.MemberOverload("quantity_get_int", one, cel.IntType,
			cel.UnaryBinding(of(func(q resource.Quantity) ref.Val {
				n, ok := q.AsInt64()
				if !ok {
					return types.WrapErr(errors.New("cannot convert value to integer"))
				}
				return types.Int(n)
			})))),
		cel.Function("asApproximateFloat", cel.MemberOverload("quantity_get_float", one, cel.DoubleType,
			cel.UnaryBinding(of(func(q resource.Quantity) ref.Val { return types.Double(q.AsApproximateFloat64()) })))),
		cel.Function("add", cel.MemberOverload("quantity_add", two, quantityType, arithmetic(add)),
			cel.MemberOverload("quantity_add_int", withInt, quantityType, arithmetic(add))),
		cel.Function("sub", cel.MemberOverload("quantity_sub", two, quantityType, arithmetic(sub)),
			cel.MemberOverload("quantity_sub_int", withInt, quantityType, arithmetic(sub))),
		cel.Function("isGreaterThan", cel.MemberOverload("quantity_is_greater_than", two, cel.BoolType,
			comparison(func(order int) ref.Val { return types.Bool(order > 0) }))),
		cel.Function("isLessThan", cel.MemberOverload("quantity_is_less_than", two, cel.BoolType,
			comparison(func(order int) ref.Val { return types.Bool(order < 0) }))),
		cel.Function("compareTo", cel.MemberOverload("quantity_compare_to", two, cel.IntType,
			comparison(func(order int) ref.Val { return types.Int(order) }))),
		cel.ASTValidators(quantityLiterals{}),
	}
	return together(options)
}

// of makes a function of one quantity.
func of(f func(resource.Quantity) ref.Val) func(ref.Val) ref.Val {
	return func(v ref.Val) ref.Val {
		q, ok := v.(quantity)
		if !ok {
			return types.MaybeNoSuchOverloadErr(v)
		}
		return f(q.DeepCopy())
	}
}

// operand is a quantity or an integer.
func operand(v ref.Val) (resource.Quantity, bool) {
	switch v := v.(type) {
	case quantity:
		return v.DeepCopy(), true
	case types.Int:
		return *resource.NewQuantity(int64(v), resource.DecimalExponent), true
	}
	return resource.Quantity{}, false
}

func arithmetic(f func(q, by resource.Quantity) resource.Quantity) cel.OverloadOpt {
	return cel.BinaryBinding(func(a, b ref.Val) ref.Val {
		by, ok := operand(b)
		if !ok {
			return types.MaybeNoSuchOverloadErr(b)
		}
		return of(func(q resource.Quantity) ref.Val { return quantity{f(q, by)} })(a)
	})
}

func comparison(f func(order int) ref.Val) cel.OverloadOpt {
	return cel.BinaryBinding(func(a, b ref.Val) ref.Val {
		with, ok := b.(quantity)
		if !ok {
			return types.MaybeNoSuchOverloadErr(b)
		}
		return of(func(q resource.Quantity) ref.Val { return f(q.Cmp(with.Quantity)) })(a)
	})
}

// longExponent is the end of a number such as 1e-200000000, which Kubernetes' parser takes minutes for. No quantity
// that a controller means has one.
var longExponent = regexp.MustCompile(`[eE][+-]?[0-9]{4,}$`)

func parseQuantity(text string) (resource.Quantity, error) {
	if !longExponent.MatchString(text) {
		if q, err := resource.ParseQuantity(text); err == nil {
			return q, nil
		}
	}
	return resource.Quantity{}, fmt.Errorf("%q is not a quantity; examples: 500m, 2, 1.5Gi, 10G", text)
}

var (
	quantityType      = cel.OpaqueType("kubernetes.Quantity")
	quantityTypeValue = types.NewOpaqueType("kubernetes.Quantity")
)

// quantity is a quantity as a value of CEL.
type quantity struct{ resource.Quantity }

func (q quantity) ConvertToNative(to reflect.Type) (any, error) {
	if reflect.TypeFor[string]().AssignableTo(to) {
		return q.String(), nil
	}
	return nil, fmt.Errorf("a quantity cannot be converted to %v", to)
}

func (q quantity) ConvertToType(to ref.Type) ref.Val {
	switch to {
	case quantityTypeValue:
		return q
	case types.TypeType:
		return quantityTypeValue
	}
	return types.NewErr("type conversion error from '%s' to '%s'", quantityTypeValue, to)
}

func (q quantity) Equal(other ref.Val) ref.Val {
	with, ok := other.(quantity)
	return types.Bool(ok && q.Cmp(with.Quantity) == 0)
}

func (quantity) Type() ref.Type { return quantityTypeValue }

func (q quantity) Value() any { return q.Quantity }

// quantityLiterals finds a text in an expression that is to be a quantity and is none, before anything runs.
type quantityLiterals struct{}

func (quantityLiterals) Name() string { return "trommel.quantityLiterals" }

func (quantityLiterals) Validate(_ *cel.Env, _ cel.ValidatorConfig, a *ast.AST, issues *cel.Issues) {
	for _, call := range ast.MatchDescendants(ast.NavigateAST(a), ast.FunctionMatcher("quantity")) {
		args := call.AsCall().Args()
		if len(args) != 1 || args[0].Kind() != ast.LiteralKind {
			continue
		}
		text, ok := args[0].AsLiteral().(types.String)
		if !ok {
			continue
		}
		if _, err := parseQuantity(string(text)); err != nil {
			issues.ReportErrorAtID(args[0].ID(), "%v", err)
		}
	}
}
