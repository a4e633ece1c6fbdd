{{/* Names and labels: NVIDIA's, so that its release can be upgraded in place (docs/decisions/0700). */}}

{{- define "gdp.name" -}}
{{- default "nvidia-device-plugin" .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "gdp.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default "nvidia-device-plugin" .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "gdp.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* What the plugin's pods are known by: NVIDIA's two labels, and those that the values select by. */}}
{{- define "gdp.identity" -}}
{{- $override := .Values.selectorLabelsOverride | default dict -}}
{{- $labels := list -}}
{{- range list (list "app.kubernetes.io/name" (include "gdp.name" .)) (list "app.kubernetes.io/instance" .Release.Name) -}}
{{- if not (hasKey $override (index . 0)) -}}
{{- $labels = append $labels (join ": " .) -}}
{{- end -}}
{{- end -}}
{{- with $override -}}
{{- $labels = append $labels (toYaml .) -}}
{{- end -}}
{{ join "\n" $labels }}
{{- end -}}

{{- define "gdp.selector" -}}
{{- if .Values.selectorLabelsOverride -}}
{{ toYaml .Values.selectorLabelsOverride }}
{{- else -}}
{{ include "gdp.identity" . }}
{{- end -}}
{{- end -}}

{{/* Labels of every object but pods. */}}
{{- define "gdp.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "gdp.identity" . }}
{{- end -}}

{{- define "gdp.serviceAccount" -}}
{{ include "gdp.fullname" . }}-service-account
{{- end -}}

{{- define "gdp.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "v%s" .Chart.AppVersion) }}
{{- end -}}
