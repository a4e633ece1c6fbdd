{{/* Volumes that more than one pod has. */}}

{{/* Directory: a node where the kubelet is elsewhere is refused, instead of getting directories that no kubelet reads. */}}
{{- define "gdp.volumes.kubelet" -}}
- name: kubelet-device-plugins-dir
  hostPath:
    path: {{ toYaml .Values.kubelet.devicePluginsDir }}
    type: Directory
- name: kubelet-pod-resources-dir
  hostPath:
    path: {{ printf "%s/pod-resources" .Values.kubelet.rootDir | toYaml }}
    type: Directory
{{- end -}}

{{- define "gdp.volumes.mps" -}}
- name: mps-root
  hostPath:
    path: {{ toYaml .Values.mps.root }}
    type: DirectoryOrCreate
- name: mps-shm
  hostPath:
    path: {{ printf "%s/shm" .Values.mps.root | toYaml }}
    type: DirectoryOrCreate
{{- end -}}

{{/* The file, the driver's files, and every GPU: each where it is asked for. */}}
{{- define "gdp.volumes.config" -}}
{{- with include "gdp.config.map" . }}
- name: config
  configMap:
    name: {{ toYaml . }}
    items:
      - key: {{ include "gdp.config.key" $ | quote }}
        path: config.yaml
{{- end }}
{{- with .Values.nvidiaDriverRoot }}
- name: driver-root
  hostPath:
    path: {{ toYaml . }}
    type: Directory
{{- end }}
{{- if include "gdp.volumeMounts" . }}
- name: every-gpu
  hostPath:
    path: /dev/null
    type: CharDevice
{{- end }}
{{- end -}}
